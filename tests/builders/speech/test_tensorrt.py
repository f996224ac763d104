"""build/speech_tensorrt.py on a double of TensorRT whose plans run their graphs with ONNX Runtime."""

from __future__ import annotations

import functools
import json
import sys
from unittest import mock

import onnx
import pytest

from tests.builders.engine_builds import command, sentence
from tests.builders.gpu_machine import H200
from tests.builders.scripts import Later
from tests.speech.whisper.checkpoints import sound
from trimodal.manifest import GpuTarget, InputRange, checkpoint_sha256, read_manifest
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
on_torch = Later("tests.speech.engines.tensorrt.torch_forward")
LARGEST = 4


@pytest.fixture
def build(trt, audio):
    common = "--audio", audio, "--contexts", "5,10", "--max-batch", LARGEST
    return lambda *arguments: command("speech_tensorrt")(*common, *arguments)


@pytest.fixture
def artefact(checkpoint, build, tmp_path):
    result = build(checkpoint, "--out", tmp_path / "tensorrt-fp16", "--min-agreement", 0.1)
    assert result.exit_code == 0, result.output
    return tmp_path / "tensorrt-fp16"


def test_plans_are_built_of_the_two_graphs_with_profiles_for_what_is_run(artefact, trt):
    parsed = trt.recorder.named("OnnxParser.parse_from_file")
    assert [str(call.arguments["model"]).rpartition("/")[2] for call in parsed] == [
        "encoder.onnx",
        "decoder.onnx",
    ]
    manifest = read_manifest(artefact, task="speech", runtime="tensorrt")
    buckets = 1, 2, LARGEST
    assert [profile["encoder:features"] for profile in manifest.profiles] == [
        InputRange(min=(1, 80, frames), opt=(2, 80, frames), max=(LARGEST, 80, frames))
        for frames in (500, 1000)
        for _ in (*buckets, "openings")
    ]
    *steps, openings = (
        {name: profile[f"decoder:{name}"] for name in ("tokens", "cross_key_0", "past_key_0")}
        for profile in manifest.profiles[: len(buckets) + 1]
    )
    for rows, step in zip(buckets, steps, strict=True):
        past = rows, 2, 448, 16
        assert step == {
            "tokens": InputRange(min=(rows, 1), opt=(rows, 1), max=(rows, 1)),
            "cross_key_0": InputRange(min=(rows, 2, 16, 250), opt=(rows, 2, 16, 250), max=(rows, 2, 16, 500)),
            "past_key_0": InputRange(min=past, opt=past, max=past),
        }
    assert openings["tokens"] == InputRange(min=(1, 1), opt=(2, 4), max=(LARGEST, 228))


def test_the_manifest_says_what_the_plans_were_built_with_and_from(artefact, checkpoint, trt):
    manifest = read_manifest(artefact, task="speech", runtime="tensorrt")
    assert manifest.runtime_version == trt.module.__version__
    assert manifest.gpu == GpuTarget(sm="9.0", name="NVIDIA H200")
    assert (manifest.precision, manifest.source) == ("fp16", "english")
    assert manifest.source_sha256 == checkpoint_sha256(checkpoint)
    assert manifest.shapes == {
        "contexts_s": [5.0, 10.0], "languages": ["en"], "mel_bins": 80, "sample_rate": 16000,
        "padding": "silence", "positions": 448, "max_batch_size": LARGEST,
    }  # fmt: skip
    extra = {key: manifest.extra[key] for key in ("multilingual", "suppressed", "suppressed_first")}
    end = json.loads((checkpoint / "generation_config.json").read_text())["eos_token_id"]
    assert extra == {"multilingual": False, "suppressed": [], "suppressed_first": [end]}
    assert manifest.command.startswith("trimodal build speech --runtime tensorrt")
    assert {"encoder.plan", "decoder.plan", "tokenizer.json"} <= set(manifest.files)
    assert not any(name.endswith((".onnx", ".pt")) for name in manifest.files)
    check = manifest.check
    assert check["batches"] == [1, 2, LARGEST]
    # ONNX Runtime computes FP16 graphs of these sizes in FP32 or FP16 as it likes, torch in FP32.
    assert 0 < check["logits_relative_error"] < 1e-2
    assert 0 < check["alignment_relative_error"] < 1e-2
    assert check["windows"] == 5


def test_the_plans_have_fp16_caches_of_a_fixed_capacity_and_give_the_new_tokens_alone(artefact):
    _, _, model = (artefact / "decoder.plan").read_bytes().partition(b"\n")
    graph = onnx.load_from_string(model).graph
    kinds = {value.name: value.type.tensor_type for value in (*graph.input, *graph.output)}
    sizes = {name: [dim.dim_value or dim.dim_param for dim in kind.shape.dim] for name, kind in kinds.items()}
    assert sizes["past_key_0"] == ["batch", 2, 448, 16]
    assert [size for size in sizes["key_0"] if isinstance(size, int)] == [2, 16]
    assert sizes["index"] == [1]
    types = {name: kind.elem_type for name, kind in kinds.items()}
    half = {name for name in types if "key" in name or "value" in name}
    assert len(half) == 12
    assert {types[name] for name in half} == {onnx.TensorProto.FLOAT16}
    assert types["logits"] == types["alignment"] == onnx.TensorProto.FLOAT
    vocabulary = sizes["logits"][2]
    large = [
        weight.dims for weight in graph.initializer if vocabulary in weight.dims and len(weight.dims) == 2
    ]
    assert len(large) == 1, "embeddings and projection are one weight"


def test_the_serving_engine_opens_it_and_hears_what_torch_hears(artefact, checkpoint, trt, monkeypatch):
    monkeypatch.setattr(engine_tensorrt, "visible_gpus", lambda: [H200])
    opened = functools.partial(engine_tensorrt.open_plans)
    monkeypatch.setattr(
        engine_tensorrt, "open_plans", lambda *arguments, device: opened(*arguments, device="cpu")
    )
    windows = [Window(sound(seconds, seed)) for seed, seconds in enumerate([3, 4, 8, 5, 9])]
    settings = RecogniseSettings(
        artefact="x", engine="tensorrt", device="cuda", max_batch_windows=LARGEST, precision="fp16"
    )
    heard = []
    for model in (
        open_engine(artefact, settings),
        on_torch.open_on_torch(checkpoint, contexts_s=[5.0, 10.0]),
    ):
        heard.append([[word.text for word in one.words] for one in model.recognise(windows)])
        model.close()
    assert sum(one == other for one, other in zip(*heard, strict=True)) >= 3, "random weights in FP16"
    assert len(set(map(str, heard[0]))) == len(windows)


@pytest.fixture
def refused(build, tmp_path):
    """The sentence of a build that fails; the plans of an earlier one are left alone, and nothing else."""

    def run(*arguments):
        old = tmp_path / "old"
        old.mkdir()
        (old / "encoder.plan").write_bytes(b"old")
        (old / "manifest.json").write_text("{}")  # an artefact: other files are not replaced
        found = sentence(build(*arguments, "--out", old))
        assert {path.name for path in old.iterdir()} == {"encoder.plan", "manifest.json"}
        assert {path.name for path in tmp_path.iterdir()} <= {"old"}
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
def test_what_tensorrt_refuses_replaces_nothing(refused, checkpoint, trt, call, result, words):
    trt.recorder.returns(call, result)
    assert words in refused(checkpoint)


@pytest.mark.parametrize("scale", [1.2, float("nan")])
def test_plans_that_compute_something_else_replace_nothing(refused, checkpoint, trt, scale):
    trt.runs.change = lambda logits: logits * scale
    assert "the plans' logits differ from torch's by " in refused(checkpoint)


def test_plans_above_our_own_limit_are_kept_with_a_warning(build, checkpoint, trt, tmp_path):
    trt.runs.change = lambda logits: logits * 1.05
    result = build(checkpoint, "--out", tmp_path / "made", "--min-agreement", 0.1)
    assert result.exit_code == 0, result.output
    check = read_manifest(tmp_path / "made", task="speech", runtime="tensorrt").check
    assert 0.02 < check["logits_relative_error"] < 0.08
    assert "logits_relative_error 0.05 is above 0.01, a limit that no GPU has confirmed" in check["warning"]


@pytest.mark.slow
def test_words_that_differ_replace_nothing(refused, checkpoint, trt):
    with mock.patch("steps.speech.check.agreement", return_value=0.9):
        found = refused(checkpoint, "--min-agreement", 0.95)
    assert "agree with torch's words on 90.0%, less than --min-agreement 0.95" in found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--contexts", "5,x"), "is not a list of seconds such as 5,10,30"),
        (("--opt-batch", 5), "--opt-batch 5 is more than --max-batch 4"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_built(refused, checkpoint, trt, arguments, words):
    assert words in refused(checkpoint, *arguments)
    assert trt.recorder.named("tensorrt.Builder") == []


def test_a_machine_without_tensorrt_is_told_so(refused, checkpoint, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert "TensorRT's Python package does not import" in refused(checkpoint)


def test_a_machine_whose_torch_has_no_cuda_is_told_of_no_check(refused, build, checkpoint, trt, tmp_path):
    with mock.patch("steps.tensorrt.plan.DEVICE", "cuda"):
        assert "torch has no CUDA here" in refused(checkpoint)
        assert build(checkpoint, "--out", tmp_path / "unchecked", "--no-check").exit_code == 0
    manifest = read_manifest(tmp_path / "unchecked", task="speech", runtime="tensorrt")
    assert manifest.check == {"not run": "--no-check"}
    assert trt.runs.runs == []


def test_room_is_asked_for_the_graphs_beside_the_plans(refused, checkpoint, trt, monkeypatch):
    weights = (checkpoint / "model.safetensors").stat().st_size  # 4 bytes of each; twice 2 are written
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 0.75 * weights)
    assert "whose disk has" in refused(checkpoint)
    assert trt.recorder.named("tensorrt.Builder") == []
