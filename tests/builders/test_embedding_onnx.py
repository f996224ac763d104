"""build/embedding_onnx.py on a tiny BERT with random weights."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders.graphs import rounds_where_told
from tests.builders.judge import made_up
from tests.builders.scripts import Later, refusal, run
from trimodal.embedding.engines.onnxruntime import open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import ArtefactError
from trimodal.manifest import read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
SCRIPT = "embedding_onnx"
reading: Any = Later("steps.embedding.checkpoint")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = made_up.write_bert(tmp_path_factory.mktemp("bert"), positions=24, signs="")
    (directory / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    return directory


@pytest.fixture(scope="module")
def built(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("embedding") / "1"
    run(SCRIPT, checkpoint, "--out-dir", out)
    return out


def test_the_check_is_in_the_manifest(built):
    fp32 = read_manifest(built / "onnx-fp32", task="embedding", runtime="onnxruntime")
    assert fp32.shapes == {"dimension": 32, "max_length": 16}
    assert fp32.check["relative_error"] < 1e-4
    assert fp32.check["min_cosine"] > 0.9999


def test_the_built_embedder_gives_torchs_vectors_whatever_the_batch(built, checkpoint):
    import torch
    from tokenizers import Tokenizer
    from transformers import BertModel

    engine = open_engine(built / "onnx-fp32", EmbeddingSettings(artefact="x", intra_op_threads=1))
    texts = ["ab", "a longer text that is cut at its end", "zz top", "q"]
    vectors = engine.embed(texts).vectors
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    bert = BertModel.from_pretrained(checkpoint, add_pooling_layer=False)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.enable_truncation(16)
    for text, vector in zip(texts, vectors, strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.inference_mode():
            mean = bert(ids).last_hidden_state.mean(1)
        np.testing.assert_allclose(vector, torch.nn.functional.normalize(mean)[0].numpy(), atol=1e-5)


def test_weights_under_other_names_are_refused(checkpoint, tmp_path, capsys):
    """transformers made up all of them, and the built embedder agreed with that: min_cosine 1."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(checkpoint, tmp_path / "copy")
    file = tmp_path / "copy" / "model.safetensors"
    save_file({f"net.{name}": one for name, one in load_file(file).items()}, file, metadata={"format": "pt"})
    sentence = refusal(capsys, SCRIPT, tmp_path / "copy", "--out-dir", tmp_path / "1")
    assert re.search("copy lacks weights: embeddings.LayerNorm.bias, ", sentence)
    assert not (tmp_path / "1").exists()


def test_too_low_a_cosine_leaves_the_old_artefact(checkpoint, tmp_path, capsys):
    (tmp_path / "onnx-fp32").mkdir()
    (tmp_path / "onnx-fp32" / "old").write_text("old")
    sentence = refusal(capsys, SCRIPT, checkpoint, "--out-dir", tmp_path, "--min-cosine", "1.5")
    assert "onnx-fp32 not written: the lowest cosine with torch" in sentence
    assert [path.name for path in tmp_path.rglob("*")] == ["onnx-fp32", "old"]


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config.json", {"model_type": "roberta"}, "model_type 'roberta'; bert is supported"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}, "only pooling by the mean is supported"),
        ("1_Pooling/config.json", {}, "only pooling by the mean is supported"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
            "only pooling by the mean is supported",
        ),
        (
            "modules.json",
            [
                {"type": "sentence_transformers.models.Transformer"},
                {"type": "sentence_transformers.models.Dense"},
            ],
            "modules.json: a module 'Dense' is not supported",
        ),
        ("modules.json", {"type": "Dense"}, "modules.json is no readable list of modules"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
            "config_sentence_transformers.json: default_prompt_name is not supported",
        ),
        ("tokenizer.json", None, "it lacks tokenizer.json"),
        ("config.json", None, "it lacks config.json"),
        ("config.json", ["bert"], "config.json is no readable JSON object"),
        ("config.json", {"model_type": "bert"}, "lacks or garbles a size ('max_position_embeddings')"),
    ],
)
def test_other_checkpoints_are_refused(checkpoint, tmp_path, capsys, file, content, told):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    target = tmp_path / file
    if content is None:
        target.unlink()
    else:
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(content))
    assert told in refusal(capsys, SCRIPT, tmp_path, "--out-dir", tmp_path / "1")


def test_texts_that_nobody_would_lower_are_refused(checkpoint, tmp_path, capsys):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    assert tokenizer["normalizer"]["lowercase"], "the tokenizer does it"
    run(SCRIPT, tmp_path, "--out-dir", tmp_path / "1")
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": None}))
    told = refusal(capsys, SCRIPT, tmp_path, "--out-dir", tmp_path / "2")
    assert "sentence_bert_config.json: do_lower_case is not supported" in told


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ([{"type": "NFC"}, {"type": "Lowercase"}], False),
        ([{"type": "Sequence", "normalizers": [{"type": "BertNormalizer", "lowercase": True}]}], False),
        ([{"type": "NFC"}, {"type": "BertNormalizer", "lowercase": False}], True),
        ([], True),
    ],
)
def test_a_normalizer_of_several_may_lower_texts(checkpoint, tmp_path, steps, refused):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    normalizer = {"type": "Sequence", "normalizers": steps}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": normalizer}))
    with pytest.raises(ArtefactError, match="do_lower_case") if refused else nullcontext():
        reading.read_contract(tmp_path)


@pytest.mark.parametrize(("without", "refused"), [("Transformer", False), ("Pooling", True)])
def test_a_module_without_a_folder_lies_beside_the_others(checkpoint, tmp_path, without, refused):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": None if kind == without else folder}
        for kind, folder in (("Transformer", ""), ("Pooling", "1_Pooling"))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ArtefactError, match="only pooling by the mean") if refused else nullcontext():
        reading.read_contract(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("kept", [0, 100])
def test_a_damaged_file_is_one_sentence(checkpoint, tmp_path, capsys, name, kept):
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes((checkpoint / name).read_bytes()[:kept])
    told = "tokenizer.json cannot be read" if "json" in name else "cannot be loaded by transformers"
    assert told in refusal(capsys, SCRIPT, tmp_path)


def test_a_misspelt_directory_is_named(capsys):
    assert "no checkpoint at ./nowhere" in refusal(capsys, SCRIPT, "./nowhere")


@rounds_where_told
def test_fp16_is_near_with_every_tensor_rounded_and_pools_in_fp32(checkpoint, tmp_path):
    import onnx

    run(SCRIPT, checkpoint, "--precision", "fp16", "--out-dir", tmp_path)
    check = read_manifest(tmp_path / "onnx-fp16", task="embedding", runtime="onnxruntime").check
    assert 0 < check["relative_error"] < check["relative_error_rounded"] < 1e-2
    assert check["min_cosine_rounded"] > 0.999
    graph = onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "onnx-fp16" / "model.onnx")).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    sums = [node for node in graph.node if node.op_type in ("ReduceSum", "ReduceL2", "Clip")]
    assert len(sums) >= 4
    assert {kinds[node.output[0]] for node in sums} == {onnx.TensorProto.FLOAT}
    products = [node for node in graph.node if node.op_type == "MatMul"]
    assert {kinds[node.output[0]] for node in products} == {onnx.TensorProto.FLOAT16}
    engine = open_engine(tmp_path / "onnx-fp16", EmbeddingSettings(artefact="x", intra_op_threads=1))
    assert np.linalg.norm(engine.embed(["ab"]).vectors[0]) == pytest.approx(1, abs=1e-5)


def test_fp16_that_a_gpu_would_get_wrong_is_refused(checkpoint, tmp_path, capsys):
    from safetensors.torch import load_file, save_file

    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    # LayerNorm gives up to 6e4, and the next product leaves FP16's range.
    weights["embeddings.LayerNorm.weight"] *= 2e4
    save_file(weights, tmp_path / "model.safetensors")
    sentence = refusal(capsys, SCRIPT, tmp_path, "--precision", "fp16", "--out-dir", tmp_path / "out")
    assert re.search("onnx-fp16 not written: relative_error(_rounded)? nan is above 0.01", sentence)
