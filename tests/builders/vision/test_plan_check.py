"""build/steps/vision/plan_check.py: the plan runs, and computes what its graph does."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.builders.graphs import SIDE
from tests.builders.scripts import refusal, run
from trimodal.manifest import read_manifest

SCRIPT = "vision_tensorrt"


def build(source: Path, *arguments: object) -> Path:
    run(SCRIPT, source, "--out-dir", source.parent, *arguments)
    return source.parent / "tensorrt-fp16"


def test_the_check_runs_the_plan_at_its_smallest_best_and_largest_batch(trt, artefact):
    plan = build(artefact, "--max-batch", 32, "--opt-batch", 5)
    check = read_manifest(plan, task="vision", runtime="tensorrt").check
    assert check["batches"] == [1, 5, 32]
    assert check["images"] == 64
    assert check["relative_error"] < 1e-6
    assert check["top1_agreement"] == 1
    given = [tuple(call.arguments["shape"]) for call in trt.recorder.named("set_input_shape")]
    assert set(given) == {(batch, 3, SIDE, SIDE) for batch in (1, 5, 32)}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda logits: logits * 1.2, "differ from the graph's by 0.2 (relative), at most 0.01 is usual"),
        (lambda logits: logits * np.nan, "differ from the graph's by nan"),
    ],
)
def test_a_plan_that_computes_something_else_replaces_nothing(trt, artefact, capsys, change, told):
    build(artefact)
    before = (artefact.parent / "tensorrt-fp16" / "manifest.json").read_text()
    trt.runs.change = change
    assert told in refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert (artefact.parent / "tensorrt-fp16" / "manifest.json").read_text() == before
    assert sorted(path.name for path in artefact.parent.iterdir()) == ["onnx-fp16", "tensorrt-fp16"]


def test_a_limit_that_nobody_measured_warns_and_keeps_the_plan(trt, artefact, capsys):
    trt.runs.change = lambda logits: logits * 1.02
    plan = build(artefact)
    told = "relative_error 0.02 is above 0.01, a limit that no GPU has confirmed"
    assert read_manifest(plan, task="vision", runtime="tensorrt").check["warning"] == told
    assert "above 0.01" in capsys.readouterr().out
    asked = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent, "--max-error", 0.01)
    assert "differ from the graph's by 0.02 (relative), --max-error is 0.01" in asked


def test_other_classes_are_refused_though_the_error_is_allowed(trt, artefact, capsys):
    trt.runs.change = lambda logits: logits[:, ::-1]
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent, "--max-error", 10)
    assert "its best classes agree with the graph's on" in sentence
    assert "less than half of the usual 0.95" in sentence


@pytest.mark.parametrize(
    ("call", "value", "told"),
    [
        ("deserialize_cuda_engine", None, "TensorRT does not take model.plan"),
        ("create_execution_context", None, "no execution context of model.plan"),
        ("set_optimization_profile_async", False, "model.plan does not take profile 0"),
        ("set_input_shape", False, f"model.plan does not take pixels of shape (1, 3, {SIDE}, {SIDE})"),
        ("execute_async_v3", False, "model.plan was not run"),
    ],
)
def test_a_plan_that_does_not_run_is_told_in_a_sentence(trt, artefact, capsys, call, value, told):
    trt.recorder.returns(call, lambda instance, **arguments: value)
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert f"the plan was built and does not run ({told}" in sentence
    assert not (artefact.parent / "tensorrt-fp16").exists()


def test_what_the_gpu_itself_refuses_is_told_in_a_sentence(trt, artefact, capsys):
    trt.recorder.raises("execute_async_v3", RuntimeError("CUDA error: out of memory\nCompile with …"))
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert sentence.endswith("was built and does not run (CUDA error: out of memory): it is not written")
    assert not (artefact.parent / "tensorrt-fp16").exists()


def test_without_cuda_in_torch_the_check_can_be_left_out(trt, artefact, capsys, monkeypatch):
    monkeypatch.setattr(importlib.import_module("steps.tensorrt.plan"), "DEVICE", "cuda")
    sentence = refusal(capsys, SCRIPT, artefact, "--out-dir", artefact.parent)
    assert "torch has no CUDA here" in sentence
    assert "--no-check" in sentence
    assert trt.recorder.calls == [], "not after a build of minutes"
    manifest = read_manifest(build(artefact, "--no-check"), task="vision", runtime="tensorrt")
    assert manifest.check["not run"] == "--no-check"
    assert trt.recorder.named("deserialize_cuda_engine") == []
