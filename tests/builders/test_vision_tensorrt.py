"""build/vision_tensorrt.py on doubles of TensorRT whose plans are ONNX graphs and run on the CPU."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from tests.builders.onnx_doubles import executes, parses
from tests.builders.scripts import BUILD, importable, refusal, run
from tests.builders.tiny_graphs import SIDE, write_artefact
from trimodal.errors import ArtefactError
from trimodal.gpu.device import Gpu
from trimodal.gpu.fit import check_shapes
from trimodal.manifest import InputRange, read_manifest
from trimodal.vision.artefact import read_classifier

SCRIPT = "vision_tensorrt"
CONFIG = BUILD.parent / "model_repository" / "vision_classify" / "config.pbtxt"
GRAPH_INPUT = 'input { key: "pixels" value { dim: [ 3, 224, 224 ] } }'
H200 = Gpu(0, "NVIDIA H200", "9.0", 150 << 30, 140 << 30, "580.1")


@pytest.fixture
def trt(tensorrt_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A machine with TensorRT and one H200, whose memory is the CPU's."""
    with importable():
        monkeypatch.setattr(importlib.import_module("tensorrt_plan"), "visible_gpus", lambda: [H200])
        monkeypatch.setattr(importlib.import_module("tensorrt_run"), "DEVICE", "cpu")
        tensorrt_double.module.__version__ = f"{tensorrt_double.version}.1.48"
        parses(tensorrt_double)
        executes(tensorrt_double)
        yield tensorrt_double


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    return write_artefact(tmp_path / "onnx-fp16")


def build(source: Path, *arguments: object) -> Path:
    run(SCRIPT, source, "--out-dir", source.parent, *arguments)
    return source.parent / "tensorrt-fp16"


def config(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = CONFIG.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    return path


def shapes(*batches: int) -> InputRange:
    low, best, high = ((batch, 3, SIDE, SIDE) for batch in batches)
    return InputRange(min=low, opt=best, max=high)


def test_the_plan_is_described_for_every_reader(trt, artefact):
    plan = build(artefact)
    assert {path.name for path in plan.iterdir()} == {"manifest.json", "model.plan", "labels.json"}
    manifest = read_manifest(plan, task="vision", runtime="tensorrt")
    assert manifest.runtime_version == f"{trt.version}.1.48"
    assert (manifest.gpu.sm, manifest.gpu.name, manifest.gpu.count) == ("9.0", "NVIDIA H200", 1)
    assert manifest.precision == "fp16"
    assert manifest.profiles == [{"pixels": shapes(1, 8, 16)}]
    assert manifest.shapes == {"pixels": [-1, 3, SIDE, SIDE], "classes": 4, "max_batch_size": 16}
    assert manifest.source_sha256 == "0" * 64
    graph = read_manifest(artefact, task="vision", runtime="onnxruntime")
    assert manifest.extra["graph"]["sha256"] == graph.files["model.onnx"]
    # vision_preprocess and vision_rank read it as they read the graph's own directory.
    ours, theirs = read_classifier(plan), read_classifier(artefact)
    assert (ours.input, ours.labels) == (theirs.input, theirs.labels)


def test_the_check_runs_the_plan_at_its_smallest_best_and_largest_batch(trt, artefact):
    plan = build(artefact, "--max-batch", 32, "--opt-batch", 5)
    check = read_manifest(plan, task="vision", runtime="tensorrt").check
    assert check["batches"] == [1, 5, 32]
    assert check["images"] == 64
    assert check["relative_error"] < 1e-6
    assert check["top1_agreement"] == 1
    given = [tuple(call.arguments["shape"]) for call in trt.recorder.named("set_input_shape")]
    assert set(given) == {(batch, 3, SIDE, SIDE) for batch in (1, 5, 32)}
    names = [call.name.rpartition(".")[2] for call in trt.recorder.calls]
    first = names.index("set_input_shape")
    assert names[first : first + 5] == [
        "set_input_shape",
        "get_tensor_shape",
        "get_tensor_dtype",
        "set_tensor_address",
        "set_tensor_address",
    ]
    assert names[first + 5] == "execute_async_v3"


def test_several_profiles_are_built_and_each_is_checked(trt, artefact):
    plan = build(artefact, "--profile", "1:1:16", "--profile", "1:16:32")
    manifest = read_manifest(plan, task="vision", runtime="tensorrt")
    assert manifest.profiles == [{"pixels": shapes(1, 1, 16)}, {"pixels": shapes(1, 16, 32)}]
    assert manifest.shapes["max_batch_size"] == 32
    chosen = [
        call.arguments["profile_index"] for call in trt.recorder.named("set_optimization_profile_async")
    ]
    assert chosen == [0, 1]
    # What the serving side asks of the same manifest.
    check_shapes(plan, manifest, {"pixels": (32, 3, SIDE, SIDE)}, "max_batch_size 32")
    with pytest.raises(ArtefactError, match="max_batch_size 33"):
        check_shapes(plan, manifest, {"pixels": (33, 3, SIDE, SIDE)}, "max_batch_size 33")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda logits: logits * 1.02, "differ from the graph's by 0.02 (relative), --max-error is 0.01"),
        (lambda logits: logits * np.nan, "differ from the graph's by nan"),
    ],
)
def test_a_plan_that_computes_something_else_replaces_nothing(trt, artefact, capsys, change, told):
    build(artefact)
    before = (artefact.parent / "tensorrt-fp16" / "manifest.json").read_text()
    executes(trt, change)
    assert told in refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert (artefact.parent / "tensorrt-fp16" / "manifest.json").read_text() == before
    assert sorted(path.name for path in artefact.parent.iterdir()) == ["onnx-fp16", "tensorrt-fp16"]


def test_other_classes_are_refused_though_the_error_is_allowed(trt, artefact, capsys):
    executes(trt, lambda logits: logits[:, ::-1])
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent, "--max-error", 10)
    assert "top-1 agreement with the graph is" in sentence
    assert "--min-agreement 0.95" in sentence


@pytest.mark.parametrize(
    ("call", "value", "told"),
    [
        ("deserialize_cuda_engine", None, "TensorRT does not load"),
        ("create_execution_context", None, "no execution context"),
        ("set_optimization_profile_async", False, "has no profile 0"),
        ("set_input_shape", False, f"takes no pixels 1×3×{SIDE}×{SIDE}"),
        ("execute_async_v3", False, "does not run"),
    ],
)
def test_a_plan_that_does_not_run_is_told_in_a_sentence(trt, artefact, capsys, call, value, told):
    trt.recorder.returns(call, lambda instance, **arguments: value)
    assert told in refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert not (artefact.parent / "tensorrt-fp16").exists()


def test_without_cuda_in_torch_the_check_can_be_left_out(trt, artefact, capsys, monkeypatch):
    monkeypatch.setattr(importlib.import_module("tensorrt_run"), "DEVICE", "cuda")
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert "torch has no CUDA here" in sentence
    assert "--no-check" in sentence
    assert trt.recorder.calls == [], "not after a build of minutes"
    manifest = read_manifest(build(artefact, "--no-check"), task="vision", runtime="tensorrt")
    assert manifest.check["not run"] == "--no-check"
    assert trt.recorder.named("deserialize_cuda_engine") == []


@pytest.mark.parametrize(
    ("changes", "arguments", "told"),
    [
        ([("max_batch_size: 16 ", "max_batch_size: 64 ")], [], "max_batch_size is 64, and no profile"),
        ([("[ 2, 4, 8, 16 ]", "[ 2, 4, 32 ]")], [], "a preferred_batch_size is 32"),
        (
            [],
            ["--max-batch", 8],
            "max_batch_size is 16, and no profile that it serves with takes it (1 to 8)",
        ),
        ([], ["--profile", "2:8:16"], "the smallest batch is 1"),
        ([('profile: [ "0" ]', 'profile: [ "0", "1" ]')], [], "names profile 1 in instance_group"),
        ([('profile: [ "0" ]', "")], ["--profile", "1:4:8", "--profile", "1:8:16"], "max_batch_size is 16"),
        (
            [("graphs: true", f"graphs: true graph_spec {{ batch_size: 4 {GRAPH_INPUT} }}")],
            [],
            "the batch_size of a graph_spec is for pixels 3×224×224, and this classifier takes 3×8×8",
        ),
        (
            [("graphs: true", "graphs: true graph_spec { batch_size: 17 }")],
            [],
            "the batch_size of a graph_spec is 17",
        ),
        ([("graphs: true", "graphs: perhaps")], [], "cannot be read as a model configuration"),
    ],
)
def test_a_config_that_asks_for_more_is_told_before_the_build(
    trt, artefact, capsys, changes, arguments, told
):
    file = config(artefact.parent, *changes)
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent, "--config", file, *arguments)
    assert told in sentence
    assert str(file) in sentence
    assert trt.recorder.named("build_serialized_network") == []


@pytest.mark.parametrize("text", ["8", "1:8", "0:1:2", "4:2:8", "1:16:8", "a:b:c"])
def test_profiles_are_written_in_one_way(trt, artefact, capsys, text):
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent, "--profile", text)
    assert f"profile {text}: MIN:OPT:MAX wanted" in sentence


@pytest.mark.parametrize(
    ("precision", "arguments", "told"),
    [
        ("int8", [], "is int8, quantised for CPUs: TensorRT wants build/vision_onnx.py --precision int8-gpu"),
        (
            "fp16",
            ["--precision", "int8"],
            "--precision fp16, or the graph of build/vision_onnx.py --precision",
        ),
    ],
)
def test_a_graph_of_another_precision_is_refused(trt, tmp_path, capsys, precision, arguments, told):
    artefact = write_artefact(tmp_path / "graph", precision)
    assert told in refusal(capsys, SCRIPT, artefact, "--out-dir", tmp_path, *arguments)


@pytest.mark.parametrize(
    ("graph", "plan"), [("fp32", "fp32"), ("fp16", "fp16"), ("int8-gpu", "int8"), ("fp8", "fp8")]
)
def test_the_plan_is_named_after_the_graphs_precision(trt, tmp_path, graph, plan):
    run(SCRIPT, write_artefact(tmp_path / "graph", graph), "--out-dir", tmp_path)
    assert read_manifest(tmp_path / f"tensorrt-{plan}", task="vision", runtime="tensorrt").precision == plan


def test_fp8_is_refused_on_a_gpu_without_it(trt, tmp_path, capsys, monkeypatch):
    a100 = Gpu(0, "NVIDIA A100-SXM4-80GB", "8.0", 80 << 30, 79 << 30, "580.1")
    monkeypatch.setattr(importlib.import_module("tensorrt_plan"), "visible_gpus", lambda: [a100])
    artefact = write_artefact(tmp_path / "graph", "fp8")
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", tmp_path)
    assert "FP8 needs SM 8.9 (Ada) or later, NVIDIA A100-SXM4-80GB has 8.0" in sentence
    assert trt.recorder.named("build_serialized_network") == []


def test_operators_that_the_parser_lacks_are_told_before_it_runs(trt, artefact, capsys):
    model = onnx.load(artefact / "model.onnx")
    model.graph.node.append(onnx.helper.make_node("Det", ["flat"], ["unused"]))
    onnx.save(model, artefact / "model.onnx")
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert "TensorRT's ONNX parser lacks what" in sentence
    assert "Det" in sentence
    assert trt.recorder.named("parse_from_file") == []


@pytest.mark.build
@pytest.mark.parametrize("tensorrt_double", ["11.4"], indirect=True)
def test_a_checkpoints_graph_is_made_first_and_stays(trt, tmp_path, capfd):
    run(SCRIPT, BUILD / "demo" / "vision", "--out-dir", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["onnx-fp16", "tensorrt-fp16"]
    plan = read_manifest(tmp_path / "tensorrt-fp16", task="vision", runtime="tensorrt")
    graph = read_manifest(tmp_path / "onnx-fp16", task="vision", runtime="onnxruntime")
    assert plan.source_sha256 == graph.source_sha256
    assert plan.check["top1_agreement"] == 1
    assert plan.profiles[0]["pixels"].max == (16, 3, 32, 32)


def test_a_checkpoint_without_a_graph_has_no_plan(trt, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.import_module(SCRIPT).sys, "executable", shutil.which("false"))
    sentence = refusal(capsys, SCRIPT, BUILD / "demo" / "vision", "--out-dir", tmp_path)
    assert sentence == "error: no graph, so no plan: build/vision_onnx.py --precision fp16 says why above"
    assert list(tmp_path.iterdir()) == []
    assert trt.recorder.named("build_serialized_network") == []


def test_arguments_are_checked(trt, artefact, capsys):
    assert "--workspace-gib 0: above 0" in refusal(capsys, SCRIPT, artefact, "--workspace-gib", 0)
    assert trt.recorder.calls == []
