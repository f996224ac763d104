"""build/steps/tensorrt/plan.py on doubles of TensorRT 10.14 and 11.4: what is asked, in which order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders.gpu_machine import RANGE, build, refused
from trimodal.errors import ArtefactError, ServerError
from trimodal.runtimes.gpu_device import Gpu


def says(trt: SimpleNamespace, severity: str, text: str) -> None:
    """TensorRT writes a line to the logger that the builder was made with."""
    logger: Any = trt.recorder.named("tensorrt.Builder")[-1].arguments["logger"]
    logger.log(getattr(trt.module.ILogger.Severity, severity), text)


def test_the_library_is_asked_in_this_order(plans, trt, graph):
    figures = build(plans, graph)
    calls = [call.name.removeprefix("tensorrt.") for call in trt.recorder.calls if "Dims" not in call.name]
    assert [name for name in calls if name not in ("ILogger", "IProgressMonitor")] == [
        "Builder",
        "Builder.create_network",
        "OnnxParser",
        "OnnxParser.parse_from_file",
        "Builder.create_builder_config",
        "Builder.create_optimization_profile",
        "IOptimizationProfile.set_shape",
        "IBuilderConfig.add_optimization_profile",
        "IBuilderConfig.clear_flag",
        "Builder.build_serialized_network",
    ]
    plan = graph.with_name("model.plan").read_bytes()
    assert plan.endswith(graph.read_bytes())
    assert (figures.tensorrt_version, figures.gpu.sm) == (f"{trt.version}.1.48", "9.0")
    assert figures.gpu.name == "NVIDIA H200"
    assert figures.profiles == [{"pixels": RANGE}]
    assert figures.bytes == len(plan)


def test_the_network_is_strongly_typed_and_precision_is_never_a_flag(plans, trt, graph):
    build(plans, graph)
    (network,) = trt.recorder.named("create_network")
    typed = trt.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    assert network.arguments == {"flags": 1 << int(typed)}
    (parsed,) = trt.recorder.named("parse_from_file")
    assert parsed.arguments == {"model": str(graph)}, "by its path: weights may lie beside it"
    assert trt.recorder.named("set_flag") == []
    assert [call.arguments["flag"].name for call in trt.recorder.named("clear_flag")] == ["TF32"]


def test_a_build_that_gives_nothing_says_what_the_log_said(plans, trt, graph):
    def fail(builder: object, network: object, config: object) -> None:
        says(trt, "ERROR", "old error")
        for number in range(3):
            says(trt, "WARNING", "only a warning")
            says(trt, "ERROR", f"[x.cpp::y::{number}] Error Code 10: Could not find any\nimplementation")

    trt.recorder.returns("build_serialized_network", fail)
    sentence = refused(plans, graph)
    assert sentence.startswith("TensorRT built no plan from model.onnx: [x.cpp::y::0] Error Code 10")
    assert sentence.count("Could not find any implementation") == 3
    assert "old error" not in sentence
    assert "warning" not in sentence


def test_out_of_memory_says_what_to_do(plans, trt, graph):
    def fail(builder: object, network: object, config: object) -> None:
        says(
            trt, "INTERNAL_ERROR", "[resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 9 GB)"
        )

    trt.recorder.returns("build_serialized_network", fail)
    sentence = refused(plans, graph)
    assert "ran out of memory building model.onnx ([resizePhysical::154]" in sentence
    assert "lower the largest batch of the profiles" in sentence
    trt.recorder.raises("build_serialized_network", MemoryError("std::bad_alloc"))
    assert "ran out of memory building model.onnx" in refused(plans, graph)
    trt.recorder.raises("build_serialized_network", RuntimeError("driver gone"))
    assert refused(plans, graph).endswith("built no plan from model.onnx: RuntimeError: driver gone")


@pytest.mark.parametrize(
    "tensorrt_double", [pytest.param("10.14", marks=pytest.mark.slow), "11.4"], indirect=True
)
def test_ctrl_c_ends_the_build_at_its_next_step(trt):
    """In a process of its own: the signal of a real Ctrl-C kills one that has run OpenVINO before."""
    file = Path(__file__).parents[1] / "ctrl_c_in_a_build.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", trt.version, str(file)]
    ended = subprocess.run(
        command, cwd=file.parents[2], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


def test_warnings_are_shown_once(plans, trt, graph, capsys):
    def warn(builder: object, network: object, config: object) -> bytes:
        for _ in range(3):
            says(trt, "WARNING", "Detected subnormal FP16 values.\nSecond line")
        for number in range(9):
            says(trt, "WARNING", f"other {number}")
        return b"plan"

    trt.recorder.returns("build_serialized_network", warn)
    build(plans, graph)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("TensorRT warns")]
    assert told == [
        "TensorRT warns: Detected subnormal FP16 values. Second line",
        *(f"TensorRT warns: other {number}" for number in range(4)),
    ]


def test_a_version_without_strong_typing_is_refused(plans, trt, graph):
    trt.module.__version__ = "8.6.1"
    assert refused(plans, graph) == "here is TensorRT 8.6.1: strongly typed plans need 10 or later"
    assert trt.recorder.calls == []


def test_without_the_library(plans, graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert "TensorRT's Python package does not import" in refused(plans, graph)


def test_without_a_gpu(plans, trt, graph, monkeypatch):
    def no_driver() -> list[Gpu]:
        raise ServerError("no NVIDIA driver answers (Driver Not Loaded): install one")

    monkeypatch.setattr(plans, "visible_gpus", no_driver)
    assert "built on the GPU that it will run on: no NVIDIA driver answers" in refused(plans, graph)
    monkeypatch.setattr(plans, "visible_gpus", list)
    assert "CUDA_VISIBLE_DEVICES leaves none" in refused(plans, graph)
    assert trt.recorder.named("tensorrt.Builder") == []


def test_a_graph_that_is_not_there_is_named(plans, trt, graph):
    with pytest.raises(ArtefactError, match="no ONNX graph at"):
        build(plans, graph.with_name("other.onnx"))
