"""build/judge/build.py on a tiny BERT with random weights, from made-up pairs to artefacts."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.builders.graphs import rounds_where_told
from tests.builders.judge import made_up
from tests.builders.scripts import Later, importable, refusal, run
from trimodal.manifest import check_files, read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SCRIPT = "judge.build"
TESTS = Path(__file__).parent
check, model, sources, training = (Later(f"judge.{name}") for name in ("check", "model", "sources", "train"))
FEW = ("--steps", 6, "--batch", 8, "--threads", 1, "--rate", 1e-3)
LINES = [
    ("How old is Rome?", "What is the age of Rome?", "same", "paraphrase"),
    ("How old is Rome?", "How old is Lima?", "different", "name"),
]


@pytest.fixture(scope="module", autouse=True)
def _scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Few and quick sources: no project's pairs, no MiniLM."""
    with importable(), pytest.MonkeyPatch.context() as patch:
        module = importlib.import_module("judge.sources")
        patch.setattr(module, "written_pairs", made_up.written)
        patch.setattr(module, "disguise", made_up.disguise)
        patch.setattr(module, "embed", made_up.embed)
        patch.setattr(module, "DATA", tmp_path_factory.mktemp("none"))
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up.write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def built(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("judge") / "1"
    pairs = made_up.write_pairs(out.with_name("own.jsonl"), LINES)
    run(SCRIPT, checkpoint, "--out-dir", out, "--pairs", pairs, "--min-agreement", 0.7, *FEW)
    return out


@rounds_where_told
def test_the_manifest_says_what_was_learned_from(built):
    for precision in ("fp32", "int8"):
        directory = built / f"onnx-{precision}"
        manifest = read_manifest(directory, task="judge", runtime="onnxruntime")
        check_files(directory, manifest)
        assert manifest.shapes == {"max_length": 96}  # what the tiny one has positions for, below 160
        assert manifest.extra["training"]["steps"] == 6
        kinds = {"number", "tense", "light", "case", "crossed", "mirrored", "name", "paraphrase"}
        assert manifest.extra["data"]["pairs"].keys() == kinds
        assert manifest.check["label_agreement"] >= (0.99 if precision == "fp32" else 0.7)
        calibration = json.loads((directory / "calibration.json").read_text())
        assert calibration["checkpoint_sha256"] == manifest.source_sha256
        assert calibration["languages"] == ["en"]
    assert read_manifest(built / "onnx-fp32", task="judge", runtime=None).check["max_logit_error"] < 1e-3
    assert (built / "onnx-int8/model.onnx").stat().st_size < (built / "onnx-fp32/model.onnx").stat().st_size


@rounds_where_told
def test_the_graph_gives_the_same_logits_whatever_the_batch(built):
    tokenizer = model.open_tokenizer(built / "onnx-fp32", 96)
    graph = check.Graph(built / "onnx-fp32" / "model.onnx", threads=1)
    pairs = [("How old is Rome?", "how OLD is rome?"), ("a", "a much longer question than that " * 9)]
    inputs = model.encode(tokenizer, pairs)
    assert set(inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert inputs["input_ids"].shape == (2, 96)
    together = graph.run(inputs)
    alone = [graph.run(model.encode(tokenizer, [pair]))[0] for pair in pairs]
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_a_seed_gives_the_same_judge(checkpoint):
    examples = [made_up.pairs.Example(f"question {at}", "?", at % 2 == 0, "x", "x") for at in range(24)]

    def trained(seed):
        schedule = training.Schedule(steps=3, batch=4, seed=seed, threads=1)
        return model.weights_sha256(training.fit(checkpoint, examples, schedule)[0])

    assert trained(5) == trained(5) != trained(6)


def test_training_learns_and_leaves_the_embeddings(checkpoint):
    examples = [
        made_up.pairs.Example(f"a {'bcdef'[at % 5]}", "x" if at % 2 else "y z", at % 2 == 1, "x", "x")
        for at in range(60)
    ]
    schedule = training.Schedule(steps=100, batch=16, rate=3e-3, threads=1)
    judge, tokenizer, figures = training.fit(checkpoint, examples, schedule)
    found = check.logits(judge, tokenizer, examples)
    right = (found > 0) == np.array([each.same for each in examples])
    assert right.mean() > 0.9
    assert figures["steps"] == 100
    fresh = model.load_encoder(checkpoint, 5)
    for name, weight in fresh.state_dict().items():
        if "word_embeddings" in name:
            assert (weight == judge.state_dict()[name]).all()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--pairs", "sealed_1.tsv"), "a sealed file is measured on, never trained on"),
        (("--pairs", "none.jsonl"), "none.jsonl: no readable file of pairs"),
        (("./nowhere",), "no checkpoint at ./nowhere"),
        ((TESTS,), "is not a checkpoint: it lacks a readable config.json"),
    ],
)
def test_a_bad_argument_is_one_sentence(capsys, arguments, told):
    assert told in refusal(capsys, SCRIPT, *arguments)


def test_too_little_agreement_leaves_the_old_artefact(checkpoint, tmp_path, capsys, monkeypatch):
    (tmp_path / "onnx-fp32").mkdir()
    (tmp_path / "onnx-fp32" / "old").write_text("old")
    limits = check.MIN_AGREEMENT
    monkeypatch.setitem(limits, "fp32", 1.1)
    sentence = refusal(capsys, SCRIPT, checkpoint, "--precision", "fp32", "--out-dir", tmp_path, *FEW)
    assert "onnx-fp32 not written: it gives torch's label to 100.00% of the held-out pairs" in sentence
    assert [path.name for path in tmp_path.rglob("*")] == ["onnx-fp32", "old"]
