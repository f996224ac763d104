"""build/speech_tensorrt_llm.py: weights under TensorRT-LLM's names, its command, and what fails."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from tests.builders.llm.test_openvino import command, sentence
from tests.builders.speech.test_ctranslate2 import _scripts, audio, checkpoint  # noqa: F401
from tests.builders.speech.test_tensorrt import graphs  # noqa: F401
from tests.speech.engines.tensorrt.plans import H200
from trimodal.manifest import GpuTarget, InputRange, read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def machine(tensorrt_llm_double, monkeypatch, _scripts):  # noqa: F811
    tensorrt_llm_double.module.__version__ = "1.2.1"
    monkeypatch.setattr(importlib.import_module("steps.tensorrt.plan"), "visible_gpus", lambda: [H200])
    return tensorrt_llm_double


@pytest.fixture
def ran(monkeypatch):
    """Commands that were run; trtllm-build writes what it writes, and keeps the weights that it was given."""
    commands: list[list[str]] = []
    kept: dict[str, dict[str, torch.Tensor]] = {}

    def run(command, **_):
        commands.append(command)
        option = dict(zip(command[1::2], command[2::2], strict=True))
        half = Path(option["--checkpoint_dir"])
        kept[half.name] = load_file(half / "rank0.safetensors")
        kept[f"{half.name} config"] = json.loads((half / "config.json").read_text())
        out = Path(option["--output_dir"])
        out.mkdir()
        (out / "rank0.engine").write_bytes(b"engine")
        (out / "config.json").write_text("{}")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return commands, kept


@pytest.fixture
def build(graphs, audio, tmp_path, monkeypatch):  # noqa: F811
    """With graphs that are there already."""
    shutil.copytree(graphs, tmp_path / "onnx-fp16")
    monkeypatch.setattr(
        importlib.import_module("speech_tensorrt_llm"), "find_graphs", lambda *_: tmp_path / "onnx-fp16"
    )
    return lambda *arguments: command("speech_tensorrt_llm")(
        *arguments, "--audio", audio, "--out", tmp_path / "built"
    )


def options(command):
    return dict(zip(command[1::2], command[2::2], strict=True))


def test_both_halves_are_compiled_and_lie_beside_the_graphs(build, checkpoint, machine, ran, tmp_path):  # noqa: F811
    result = build(checkpoint, "--max-batch", 4, "--no-check")
    assert result.exit_code == 0, result.output
    encoder, decoder = map(options, ran[0])
    assert [command[0] for command in ran[0]] == ["trtllm-build", "trtllm-build"]
    common = {"--moe_plugin": "disable", "--max_batch_size": "4", "--bert_attention_plugin": "float16"}
    paths = {"--checkpoint_dir", "--output_dir"}
    assert {name: value for name, value in encoder.items() if name not in paths} == common | {
        "--gemm_plugin": "disable", "--max_input_len": "1000", "--max_seq_len": "1000",
    }  # fmt: skip
    assert {name: value for name, value in decoder.items() if name not in paths} == common | {
        "--gemm_plugin": "float16", "--gpt_attention_plugin": "float16", "--max_beam_width": "1",
        "--max_input_len": "228", "--max_seq_len": "448", "--max_encoder_input_len": "1000",
    }  # fmt: skip
    manifest = read_manifest(tmp_path / "built", task="speech", runtime="tensorrt_llm")
    assert (manifest.runtime_version, manifest.precision) == ("1.2.1", "fp16")
    assert manifest.gpu == GpuTarget(sm="9.0", name="NVIDIA H200")
    assert manifest.profiles == [
        {"encoder:features": InputRange(min=(1, 80, 500), opt=(4, 80, 1000), max=(4, 80, 1000))}
    ]
    assert {
        "encoder/rank0.engine",
        "decoder/config.json",
        "encoder.onnx",
        "decoder.onnx",
        "keep.onnx",
    } <= set(manifest.files)
    assert {path.name for path in tmp_path.iterdir()} == {"built", "onnx-fp16"}, "no weights are left"


def test_weights_are_the_checkpoints_under_the_librarys_names(build, checkpoint, machine, ran):  # noqa: F811
    assert build(checkpoint, "--no-check").exit_code == 0
    state = importlib.import_module("steps.speech.checkpoint").load(checkpoint, "x").model.model.state_dict()
    state = {name: value.half() for name, value in state.items()}
    encoder, decoder = ran[1]["encoder"], ran[1]["decoder"]
    assert all(value.dtype == torch.float16 for value in (*encoder.values(), *decoder.values()))
    assert encoder["transformer.conv1.weight"].shape == (32, 80, 3, 1)
    assert decoder["lm_head.weight"].equal(state["decoder.embed_tokens.weight"])
    for weights, half, ours, theirs in (
        (encoder, "encoder", "attention", "self_attn"),
        (decoder, "decoder", "self_attention", "self_attn"),
        (decoder, "decoder", "cross_attention", "encoder_attn"),
    ):
        for part, name in enumerate("qkv"):
            fused = {kind: weights[f"transformer.layers.1.{ours}.qkv.{kind}"] for kind in ("weight", "bias")}
            source = f"{half}.layers.1.{theirs}.{name}_proj"
            rows = slice(32 * part, 32 * part + 32)
            assert fused["weight"][rows].equal(state[f"{source}.weight"])
            expected = torch.zeros(32).half() if name == "k" else state[f"{source}.bias"]
            assert fused["bias"][rows].equal(expected)
    # Every number of the checkpoint is there once, and nothing else but keys' biases and the last product.
    count = sum(value.numel() for value in (*encoder.values(), *decoder.values()))
    keys = 32 * (2 + 2 * 2)
    assert count == sum(value.numel() for value in state.values()) + keys + decoder["lm_head.weight"].numel()
    config = ran[1]["decoder config"]
    assert (config["num_hidden_layers"], config["head_size"], config["ffn_hidden_size"]) == (2, 16, 64)
    assert (config["vocab_size"], config["max_position_embeddings"]) == (len(decoder["lm_head.weight"]), 448)
    assert ran[1]["encoder config"]["n_mels"] == 80


@pytest.mark.parametrize("agrees", [True, False])
def test_words_decide_whether_it_is_kept(build, checkpoint, machine, ran, tmp_path, agrees):  # noqa: F811
    """The engines themselves are doubles here: what they hear is tests/speech's affair."""
    opened = []

    def open_engine(directory, settings):
        opened.append((directory.name, settings.device, settings.max_batch_windows))
        return mock.MagicMock(languages=("en",))

    script = "speech_tensorrt_llm.{}.open_engine"
    with (
        mock.patch(script.format("engine_onnxruntime"), open_engine),
        mock.patch(script.format("engine_tensorrt_llm"), open_engine),
        mock.patch("steps.speech.plan_check.spoken", return_value=[]),
        mock.patch("steps.speech.plan_check.agreement", return_value=1.0 if agrees else 0.5),
    ):
        result = build(checkpoint, "--max-batch", 4)
    assert opened[1][1:] == ("cuda", 4)
    if agrees:
        assert result.exit_code == 0, result.output
        manifest = read_manifest(tmp_path / "built", task="speech", runtime="tensorrt_llm")
        assert manifest.check == {"windows": 5, "word_agreement": 1.0, "min_agreement": 0.95}
    else:
        assert "agree with their graphs on 50.0% of the words, less than --min-agreement 0.95" in sentence(
            result
        )
        assert {path.name for path in tmp_path.iterdir()} == {"onnx-fp16"}


def test_a_release_without_engines_and_a_machine_without_the_library_are_told(
    build,
    checkpoint,  # noqa: F811
    machine,
    ran,
    monkeypatch,
):
    machine.module.__version__ = "1.3.0"
    assert "TensorRT-LLM 1.3.0 compiles no engines, 1.2 was the last" in sentence(build(checkpoint))
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    assert "TensorRT-LLM does not import" in sentence(build(checkpoint))
    assert ran[0] == []


def test_a_command_that_fails_or_is_missing_is_told(build, checkpoint, machine, tmp_path):  # noqa: F811
    with mock.patch("subprocess.run", return_value=subprocess.CompletedProcess([], 3)):
        assert "trtllm-build made no engine of the encoder (exit code 3)" in sentence(build(checkpoint))
    with mock.patch("subprocess.run", side_effect=FileNotFoundError):
        assert "no trtllm-build here" in sentence(build(checkpoint))
    assert {path.name for path in tmp_path.iterdir()} == {"onnx-fp16"}
