"""build/speech_tensorrt.py on a double of TensorRT whose plans run their graphs with ONNX Runtime."""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import onnx
import pytest

from tests.builders.engine_builds import command, sentence
from tests.speech.engines.tensorrt.on_onnx import TensorRTOnOnnx, builds
from tests.speech.engines.tensorrt.plans import H200
from tests.speech.whisper.checkpoints import sound
from trimodal.manifest import GpuTarget, InputRange, read_manifest
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.engines.tensorrt import engine as engine_tensorrt
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

# Names and arguments of 10.14 are looked at where the engine is tested, and by mypy.
pytestmark = [
    pytest.mark.slow,
    *(pytest.mark.build, pytest.mark.filterwarnings("ignore")),
    pytest.mark.parametrize("tensorrt_double", ["11.4"], indirect=True),
]
LARGEST = 4


@pytest.fixture
def graphs(onnx_artefacts: Path) -> Path:
    """FP16 graphs of build/speech_onnx.py."""
    return onnx_artefacts / "fp16"


@pytest.fixture
def machine(tensorrt_double, monkeypatch):
    """A GPU machine's libraries: both doubles, memory on the processor."""
    runs = TensorRTOnOnnx(tensorrt_double)
    builds(tensorrt_double)
    monkeypatch.setattr(importlib.import_module("steps.tensorrt.plan"), "visible_gpus", lambda: [H200])
    monkeypatch.setattr(importlib.import_module("steps.tensorrt.run"), "DEVICE", "cpu")
    return SimpleNamespace(runs=runs, recorder=tensorrt_double.recorder, module=tensorrt_double.module)


@pytest.fixture
def build(machine, audio, tmp_path):
    cache = tmp_path / "cache"
    return lambda *arguments: command("speech_tensorrt")(
        *arguments, "--audio", audio, "--max-batch", LARGEST, "--timing-cache", cache
    )


@pytest.fixture
def artefact(graphs, build, tmp_path):
    result = build(graphs, "--out", tmp_path / "tensorrt-fp16")
    assert result.exit_code == 0, result.output
    return tmp_path / "tensorrt-fp16"


def test_plans_are_built_of_the_two_graphs_with_profiles_for_what_is_run(artefact, machine):
    parsed = machine.recorder.named("OnnxParser.parse_from_file")
    assert [str(call.arguments["model"]).rpartition("/")[2] for call in parsed] == [
        "encoder.onnx",
        "decoder.onnx",
    ]
    manifest = read_manifest(artefact, task="speech", runtime="tensorrt")
    assert [profile["encoder:features"] for profile in manifest.profiles] == [
        InputRange(min=(1, 80, frames), opt=(2, 80, frames), max=(LARGEST, 80, frames))
        for frames in (500, 500, 1000, 1000)
    ]
    steps, prompts = (
        {name: profile[f"decoder:{name}"] for name in ("tokens", "cross_key_0", "past_key_0")}
        for profile in manifest.profiles[:2]
    )
    cross = InputRange(min=(1, 2, 16, 250), opt=(2, 2, 16, 250), max=(LARGEST, 2, 16, 500))
    assert steps == {
        "tokens": InputRange(min=(1, 1), opt=(2, 1), max=(LARGEST, 1)),
        "cross_key_0": cross,
        "past_key_0": InputRange(min=(1, 2, 1, 16), opt=(2, 2, 32, 16), max=(LARGEST, 2, 447, 16)),
    }
    assert prompts == {
        "tokens": InputRange(min=(1, 1), opt=(2, 4), max=(LARGEST, 228)),
        "cross_key_0": cross,
        "past_key_0": InputRange(min=(1, 2, 0, 16), opt=(2, 2, 1, 16), max=(LARGEST, 2, 228, 16)),
    }


def test_the_manifest_says_what_the_plans_were_built_with_and_from(artefact, graphs, machine):
    manifest = read_manifest(artefact, task="speech", runtime="tensorrt")
    source = read_manifest(graphs, task="speech", runtime="onnxruntime")
    assert manifest.runtime_version == machine.module.__version__
    assert manifest.gpu == GpuTarget(sm="9.0", name="NVIDIA H200")
    assert (manifest.precision, manifest.source_sha256) == ("fp16", source.source_sha256)
    assert manifest.shapes == source.shapes | {"max_batch_size": LARGEST}
    assert manifest.extra["graphs"]["sha256"] == {
        name: source.files[name] for name in ("encoder.onnx", "decoder.onnx")
    }
    assert "build/speech_tensorrt.py" in manifest.command
    assert {"encoder.plan", "decoder.plan", "tokenizer.json"} <= set(manifest.files)
    assert not any(name.endswith(".onnx") for name in manifest.files)
    check = manifest.check
    assert check["batches"] == [1, 2, LARGEST]
    # The double computes what the graphs compute, but for what is fused without the output `hidden`.
    assert check["logits_relative_error"] < 2e-3
    assert check["alignment_relative_error"] < 2e-3
    assert (check["word_agreement"], check["windows"]) == (1.0, 5)


def test_the_plan_lacks_what_nobody_reads(artefact, graphs):
    _, _, model = (artefact / "encoder.plan").read_bytes().partition(b"\n")
    outputs = {output.name for output in onnx.load_from_string(model).graph.output}
    assert "hidden" not in outputs
    assert outputs == {f"cross_{kind}_{layer}" for kind in ("key", "value") for layer in range(2)}
    assert "hidden" in {output.name for output in onnx.load(graphs / "encoder.onnx").graph.output}


def test_the_serving_engine_opens_it_and_hears_what_the_graphs_hear(artefact, graphs, machine, monkeypatch):
    monkeypatch.setattr(engine_tensorrt, "visible_gpus", lambda: [H200])
    opened = functools.partial(engine_tensorrt.open_plans)
    monkeypatch.setattr(
        engine_tensorrt, "open_plans", lambda *arguments, device: opened(*arguments, device="cpu")
    )
    windows = [Window(sound(seconds, seed)) for seed, seconds in enumerate([3, 4, 8, 5, 9])]
    heard = []
    for directory, engine, device in ((artefact, "tensorrt", "cuda"), (graphs, "onnxruntime", "cpu")):
        settings = RecogniseSettings(
            artefact="x", engine=engine, device=device, max_batch_windows=LARGEST, precision="fp16"
        )
        model = open_engine(directory, settings)
        heard.append([[(word.text, word.start) for word in one.words] for one in model.recognise(windows)])
        model.close()
    assert heard[0] == heard[1]
    assert len(set(map(str, heard[0]))) == len(windows)


@pytest.fixture
def refused(build, tmp_path):
    """The sentence of a build that fails; the plans of an earlier one are left alone, and nothing else."""

    def run(*arguments):
        old = tmp_path / "old"
        old.mkdir()
        (old / "encoder.plan").write_bytes(b"old")
        found = sentence(build(*arguments, "--out", old))
        assert [path.name for path in old.iterdir()] == ["encoder.plan"]
        assert {path.name for path in tmp_path.iterdir()} <= {"old", "cache"}
        return found

    return run


@pytest.mark.parametrize(
    ("call", "result", "words"),
    [
        ("Builder.build_serialized_network", None, "TensorRT built no plan from encoder.onnx"),
        ("OnnxParser.parse_from_file", False, "TensorRT's ONNX parser refuses"),
        ("IExecutionContext.execute_async_v3", False, "encoder.plan was not run"),
    ],
)
def test_what_tensorrt_refuses_replaces_nothing(refused, graphs, machine, call, result, words):
    machine.recorder.returns(call, result)
    assert words in refused(graphs)


@pytest.mark.parametrize("scale", [1.05, float("nan")])
def test_plans_that_compute_something_else_replace_nothing(refused, graphs, machine, scale):
    machine.runs.scale = scale
    assert "the plans differ from their graphs (logits: " in refused(graphs)


@pytest.mark.slow
def test_words_that_differ_replace_nothing(refused, graphs, machine):
    with mock.patch("steps.speech.plan_check.agreement", return_value=0.9):
        found = refused(graphs, "--min-agreement", 0.95)
    assert "agree with their graphs on 90.0% of the words, less than --min-agreement 0.95" in found


def test_an_operator_that_the_parser_lacks_is_named_before_the_build(refused, graphs, machine):
    with mock.patch("steps.tensorrt.operators.unsupported", return_value=["NonZero of float64", "Unique"]):
        assert "lacks what" in (found := refused(graphs))
    assert found.endswith("needs: NonZero of float64; Unique")
    assert machine.recorder.named("Builder.build_serialized_network") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--precision", "fp32"), "is fp16, and a plan has its graphs' precision: name --precision fp16"),
        (("--opt-batch", 5), "--opt-batch 5 is more than --max-batch 4"),
        (("--workspace-gib", -1), "--workspace-gib -1: above 0"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_built(refused, graphs, machine, arguments, words):
    assert words in refused(graphs, *arguments)
    assert machine.recorder.named("tensorrt.Builder") == []


def test_a_machine_without_tensorrt_is_told_so(refused, graphs, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert "TensorRT's Python package does not import" in refused(graphs)


def test_a_machine_whose_torch_has_no_cuda_is_told_of_no_check(refused, build, graphs, machine, tmp_path):
    with mock.patch("steps.tensorrt.run.DEVICE", "cuda"):
        assert "torch has no CUDA here" in refused(graphs)
        assert build(graphs, "--out", tmp_path / "unchecked", "--no-check").exit_code == 0
    manifest = read_manifest(tmp_path / "unchecked", task="speech", runtime="tensorrt")
    assert manifest.check == {"not run": "--no-check"}
    assert machine.runs.runs == []


@pytest.mark.slow
def test_graphs_of_a_checkpoint_are_made_first_and_stay_beside_the_plans(
    build,
    checkpoint,
    audio,
    graphs,
    tmp_path,
):
    def made(command, **_):
        assert Path(command[1]).name == "speech_onnx.py"
        assert command[2:] == [
            *(str(checkpoint), "--precision", "fp16", "--out", str(tmp_path / "onnx-fp16")),
            *("--audio", str(audio), "--contexts", "5,10"),
        ]
        shutil.copytree(graphs, tmp_path / "onnx-fp16")
        return subprocess.CompletedProcess(command, 0)

    with mock.patch("subprocess.run", made):
        result = build(checkpoint, "--out", tmp_path / "tensorrt-fp16", "--contexts", "5,10")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "tensorrt-fp16" / "decoder.plan").is_file()
    failed = subprocess.CompletedProcess([], 1)
    with mock.patch("subprocess.run", return_value=failed):
        assert "no graphs, so no plans" in sentence(build(checkpoint, "--out", tmp_path / "other"))
