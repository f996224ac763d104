"""build/vision_tensorrt.py on doubles of TensorRT whose plans are ONNX graphs and run on the CPU."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders.gpu_machine import H200
from tests.builders.graphs import SIDE, write_artefact
from tests.builders.scripts import BUILD, refusal, run
from trimodal.build_support import STOPPED
from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange, read_manifest
from trimodal.repository import read_model
from trimodal.runtimes import gpu_libraries
from trimodal.runtimes.gpu_device import Gpu
from trimodal.runtimes.gpu_fit import check_shapes
from trimodal.server.artefacts import Artefact, check_artefact
from trimodal.vision.artefact import read_classifier

SCRIPT = "vision_tensorrt"
CONFIG = BUILD.parent / "model_repository" / "vision_classify" / "config.pbtxt"


def build(source: Path, *arguments: object) -> Path:
    run(SCRIPT, source, "--out-dir", source.parent, *arguments)
    return source.parent / "tensorrt-fp16"


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


def test_what_is_built_for_the_repositorys_config_passes_the_launchers_check(trt, artefact, monkeypatch):
    plan = build(artefact)
    model = read_model(CONFIG.parents[1], "vision_classify", "tensorrt")
    served = Artefact(model, plan, "vision", "tensorrt")
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: f"{trt.version}.1")
    assert check_artefact(served, [H200]).precision == "fp16"
    with pytest.raises(ArtefactError, match=r"compiled for SM 9.0 \(NVIDIA H200\), GPU 0 has 8.9"):
        check_artefact(served, [replace(H200, sm="8.9")])
    monkeypatch.setattr(gpu_libraries, "native_tensorrt", lambda: "10.13.3")
    with pytest.raises(ArtefactError, match=r"was built with tensorrt .*, here is 10.13.3"):
        check_artefact(served, [H200])


@pytest.mark.parametrize(
    ("arguments", "batches"),
    [
        (["--max-batch", 1], (1, 1, 1)),
        (["--max-batch", 32], (1, 16, 32)),
        (["--max-batch", 32, "--opt-batch", 4], (1, 4, 32)),
    ],
)
def test_the_batches_are_those_that_were_asked_for(trt, artefact, arguments, batches):
    plan = build(artefact, *arguments)
    manifest = read_manifest(plan, task="vision", runtime="tensorrt")
    assert manifest.profiles == [{"pixels": shapes(*batches)}]
    most = batches[2]
    assert manifest.shapes["max_batch_size"] == most
    # What the serving side asks of the same manifest.
    check_shapes(plan, manifest, {"pixels": (most, 3, SIDE, SIDE)}, f"max_batch_size {most}")
    with pytest.raises(ArtefactError, match=f"max_batch_size {most + 1}"):
        check_shapes(plan, manifest, {"pixels": (most + 1, 3, SIDE, SIDE)}, f"max_batch_size {most + 1}")


@pytest.mark.parametrize("arguments", [["--max-batch", 0], ["--opt-batch", 17], ["--opt-batch", 0]])
def test_batches_are_in_order(trt, artefact, capsys, arguments):
    told = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent, *arguments)
    assert "is not within 1 to --max-batch" in told


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
    monkeypatch.setattr(importlib.import_module("steps.tensorrt.plan"), "visible_gpus", lambda: [a100])
    artefact = write_artefact(tmp_path / "graph", "fp8")
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", tmp_path)
    assert "FP8 needs SM 8.9 (Ada) or later, NVIDIA A100-SXM4-80GB has 8.0" in sentence
    assert trt.recorder.named("build_serialized_network") == []


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize("tensorrt_double", ["11.4"], indirect=True)
def test_a_checkpoints_graph_is_made_first_and_stays(trt, random_checkpoint, tmp_path, capfd):
    run(SCRIPT, random_checkpoint("resnet-nano"), "--out-dir", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["onnx-fp16", "tensorrt-fp16"]
    plan = read_manifest(tmp_path / "tensorrt-fp16", task="vision", runtime="tensorrt")
    graph = read_manifest(tmp_path / "onnx-fp16", task="vision", runtime="onnxruntime")
    assert plan.source_sha256 == graph.source_sha256
    assert plan.check["top1_agreement"] == 1
    assert plan.profiles[0]["pixels"].max == (16, 3, 64, 64)


def test_a_checkpoint_without_a_graph_has_no_plan(trt, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.import_module(SCRIPT).sys, "executable", shutil.which("false"))
    sentence = refusal(capsys, SCRIPT, "owner/name", "--out-dir", tmp_path)
    assert sentence == "error: no graph, so no plan: build/vision_onnx.py --precision fp16 says why above"
    assert list(tmp_path.iterdir()) == []
    assert trt.recorder.named("build_serialized_network") == []


def test_ctrl_c_while_the_graph_is_made_is_no_failure_of_it(trt, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module(SCRIPT), "run_script", lambda command: STOPPED)
    with pytest.raises(SystemExit) as ended:
        run(SCRIPT, "owner/name", "--out-dir", tmp_path)
    assert ended.value.code == STOPPED
    assert list(tmp_path.iterdir()) == []


def test_too_small_a_disk_is_told_before_the_plan_is_compiled(trt, artefact, capsys, monkeypatch):
    monkeypatch.setattr("trimodal.manifest.free_room", lambda place: 100)
    told = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert "whose disk has 0 MB left: free some" in told
    assert trt.recorder.named("tensorrt.Builder") == []
