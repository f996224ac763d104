"""What tests of plans share: a machine with one GPU and TensorRT, a graph, a build, one that is refused."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.builders.graphs import write_artefact, write_classifier
from tests.builders.scripts import importable
from tests.speech.engines.tensorrt.on_onnx import TensorRTOnOnnx, builds
from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange
from trimodal.runtimes.gpu_device import Gpu

H200 = Gpu(0, "NVIDIA H200", "9.0", 150 << 30, 140 << 30, "580.1")
RANGE = InputRange(min=(1, 3, 8, 8), opt=(4, 3, 8, 8), max=(16, 3, 8, 8))


def build(plans: ModuleType, graph: Path, *profiles: dict[str, InputRange]) -> Any:
    """`model.plan` beside the graph, with one profile of RANGE unless told others."""
    chosen = list(profiles) or [{"pixels": RANGE}]
    return plans.build_plan(graph, graph.with_name("model.plan"), chosen)


def refused(plans: ModuleType, graph: Path, *profiles: dict[str, InputRange]) -> str:
    """The sentence; the plan of an earlier build is left alone, and nothing else is left."""
    plan = graph.with_name("model.plan")
    plan.write_bytes(b"old")
    with pytest.raises(ArtefactError) as caught:
        build(plans, graph, *profiles)
    assert plan.read_bytes() == b"old"
    assert {path.name for path in graph.parent.iterdir()} <= {"model.onnx", "model.plan"}
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """build/steps/tensorrt/plan.py on a machine with one H200."""
    with importable():
        module = importlib.import_module("steps.tensorrt.plan")
        monkeypatch.setattr(module, "visible_gpus", lambda: [H200])
        yield module


@pytest.fixture
def trt(
    plans: ModuleType, tensorrt_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> SimpleNamespace:
    """TensorRT there whose plans are ONNX graphs and run on the CPU, in its memory."""
    monkeypatch.setattr(importlib.import_module("steps.tensorrt.plan"), "DEVICE", "cpu")
    tensorrt_double.module.__version__ = f"{tensorrt_double.version}.1.48"
    builds(tensorrt_double)
    tensorrt_double.runs = TensorRTOnOnnx(tensorrt_double)
    return tensorrt_double


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A classifier's graph of a few nodes."""
    return write_classifier(tmp_path / "model.onnx")


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    """A classifier as build/vision_onnx.py leaves it."""
    return write_artefact(tmp_path / "onnx-fp16")
