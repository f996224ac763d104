"""`trimodal bench cache` as a user calls it: accuracy on pairs, calibration, and what it refuses."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.e2e.conftest import built
from trimodal.bench.cache import bench
from trimodal.bench.cache.pairs import read_pairs
from trimodal.cli.app import app
from trimodal.errors import OperatorError
from trimodal.judge.engines.fake import FakeJudge
from trimodal.manifest import Manifest, write_manifest

SAME = {
    "id": "s",
    "a": "How do I add a user?",
    "b": "Do I add how a user",
    "label": "same",
    "class": "paraphrase",
}
OTHER = {"id": "d", "a": "Add 3 users", "b": "Add 4 users", "label": "different", "class": "number"}


def run(*arguments):
    result = CliRunner().invoke(
        app, ["bench", "cache", *map(str, arguments)], env={"COLUMNS": "160", "TERM": "dumb"}
    )
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


def pairs(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """No engine is needed: all questions are alike, and the judge counts words in common."""

    class Alike:
        def embed(self, texts):
            return SimpleNamespace(vectors=np.ones((len(texts), 1), np.float32))

    facts = {"runtime_version": "0", "precision": "fp32", "source": "test", "source_sha256": "abc"}
    write_manifest(tmp_path, Manifest(task="judge", runtime="onnxruntime", command="python x", **facts))
    monkeypatch.setattr(bench, "_open_embedder", Alike)
    monkeypatch.setattr(bench, "_open_judge", lambda artefact: (FakeJudge(), artefact))
    return tmp_path


def test_own_pairs_calibrate_and_are_then_used(fakes):
    file = pairs(fakes / "own.jsonl", *[SAME] * 3, "", *[OTHER] * 400)
    code, _ = run("--pairs", file, "--accuracy-only", "--artefact", fakes, "--calibrate", fakes / "c.json")
    assert code == 0
    assert json.loads((fakes / "c.json").read_text())["pairs"] == "own.jsonl"
    more = ("--calibration", fakes / "c.json", "--json", fakes / "f.json", "--show", 1)
    code, output = run("--pairs", file, "--accuracy-only", "--artefact", fakes, *more)
    assert code == 0
    assert "hits: 3 of 3 rewordings, 100.0%: the goal of 50% is met" in output
    assert "false hits: 0 of 400" in output
    sides = json.loads((fakes / "f.json").read_text())["sides"]
    assert sides["judge"]["classes"]["number"]["hits"] == 0
    assert sides["cosine alone"]["hits"]["hits"] == 0  # all are equally near


def test_a_false_hit_and_a_miss_are_shown(fakes):
    near = {**OTHER, "id": "n", "b": "add 3 users"}
    far = {**SAME, "id": "f", "b": "How are accounts made?"}
    file = pairs(fakes / "own.jsonl", SAME, far, near, *[OTHER] * 400)
    more = ("--calibrate", fakes / "c.json", "--show", 9, "--max-false-hit", 0.02)
    code, output = run("--pairs", file, "--accuracy-only", "--artefact", fakes, *more)
    assert code == 0
    assert "false hit n (cosine 1.00, P(same) 1.0000): Add 3 users | add 3 users" in output
    assert "missed f (cosine 1.00, P(same) 0." in output


def test_few_pairs_cannot_show_a_low_bound(fakes):
    file = pairs(fakes / "own.jsonl", SAME, OTHER)
    code, output = run(
        "--pairs", file, "--accuracy-only", "--artefact", fakes, "--calibrate", fakes / "c.json"
    )
    assert code == 1
    assert "no threshold keeps it; the least bound on own.jsonl (1 near-identical pairs) is 0.97" in output


def test_a_judge_without_a_calibration_is_told(fakes):
    code, output = run("--pairs", pairs(fakes / "own.jsonl", SAME), "--accuracy-only", "--artefact", fakes)
    assert (code, "no calibration of the cache" in output) == (1, True)


@pytest.mark.slow
@pytest.mark.build
def test_the_trained_judge_keeps_apart_what_must_be(tmp_path):
    """Pairs that were found while the cache was made, and must not be shared; and some that should be."""
    built("judge", "onnx-int8")
    code, output = run(
        "--pairs", bench.DATA / "behaviour.jsonl", "--accuracy-only", "--json", tmp_path / "f.json"
    )
    judged = json.loads((tmp_path / "f.json").read_text())["sides"]["judge"]
    assert code == 0, output
    assert judged["false_hits"]["hits"] <= 1  # of 584: with 2 more than 1 % would be possible
    assert judged["hits"]["rate"] >= 0.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--part", "test"], "known are report, tune"),
        (["--part", "tune", "--pairs", "x"], "--part and --pairs: one of them"),
        (["--part", "report", "--calibrate", "c.json"], "what is tuned on cannot be reported on"),
        (["--calibrate", "/nowhere/c.json"], "no file can be written there"),
        (["--calibrate", "c.json", "--calibration", "d.json"], "one of them"),
        (["--pairs", "/nowhere.jsonl"], "/nowhere.jsonl: no readable file of pairs"),
        (["--max-false-hit", "0"], "max-false-hit"),
    ],
)
def test_wrong_options_are_one_sentence(arguments, sentence):
    code, output = run("--accuracy-only", *arguments)
    assert code in (1, 2)
    assert sentence in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2: no JSON object"),
        ("[]", "line 2: the line"),
        ({**SAME, "class": "colour"}, "line 2: class"),
        ({**SAME, "class": "number"}, "line 2: label: class 'number' is 'different'"),
        ({**SAME, "a": ""}, "line 2: a: "),
        ({**SAME, "a": "x" * 5000}, "line 2: a: "),
        ({**SAME, "more": 1}, "line 2: more"),
        ({**SAME, "label": "different"}, "line 2: label"),
        ({**OTHER, "label": "same"}, "line 2: label"),
        ('{"a": "\\ud800"}', "line 2: "),
        ("[" * 100_000, "line 2: no JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, sentence):
    with pytest.raises(OperatorError, match=sentence):
        read_pairs(pairs(tmp_path / "own.jsonl", SAME, line))


def test_an_empty_file_has_no_pairs(tmp_path):
    with pytest.raises(OperatorError, match="there are no pairs in it"):
        read_pairs(pairs(tmp_path / "own.jsonl"))
