"""A step that cannot be measured is skipped with the reason, and nothing else is."""

import sys
from dataclasses import replace
from importlib import import_module
from types import ModuleType

import pytest

from benchmarks.gpu_check import steps as gpu_steps
from benchmarks.gpu_check.steps import PARTS, Options, Step, run_step

OPTIONS = Options("cuda", 0.01, 1, "nowhere")


def listed():
    """Every step of every part, which would measure nothing."""
    for name in PARTS:
        for step in import_module(f"benchmarks.gpu_check.parts.{name}").STEPS:
            yield f"{name} {step.name}", replace(step, measure=lambda options: {"measured": True})


NEEDED = sorted({module for _, step in listed() for module in step.needs})


@pytest.mark.parametrize("library", NEEDED)
def test_without_a_library_its_steps_are_skipped_and_all_others_measured(monkeypatch, library):
    there = set(NEEDED) - {library}
    monkeypatch.setattr(gpu_steps, "find_spec", lambda name: name if name in there else None)
    found = {name: run_step(step, OPTIONS) for name, step in listed()}
    needy = {name for name, step in listed() if library in step.needs}
    assert needy
    for name, outcome in found.items():
        skipped = {"skipped": f"{library} is not installed"}
        assert outcome == (skipped if name in needy else {"measured": True})


def test_every_part_of_models_measures_something_with_torch_alone():
    for name in ("vision", "llm", "interference"):
        steps = import_module(f"benchmarks.gpu_check.parts.{name}").STEPS
        assert any(tuple(step.needs) == ("torch",) and not step.gpu for step in steps)


def test_what_fails_to_import_is_skipped_but_never_a_fault_of_ours():
    def theirs(options):
        import a_library_that_is_not_there  # noqa: F401

    def ours(options):
        from trimodal.paths import nothing_of_that_name  # noqa: F401

    assert "skipped" in run_step(Step("one", theirs), OPTIONS)
    assert "error" in run_step(Step("one", ours), OPTIONS)


def test_a_rehearsal_leaves_out_what_needs_a_gpu():
    step = Step("one", lambda options: {"measured": True}, gpu=True)
    assert run_step(step, replace(OPTIONS, device="cpu")) == {"skipped": "it needs a GPU"}
    assert run_step(step, OPTIONS) == {"measured": True}


def test_an_onnxruntime_without_cuda_is_skipped(monkeypatch):
    library = ModuleType("onnxruntime")
    library.__version__ = "1.0"
    library.get_available_providers = lambda: ["CPUExecutionProvider"]
    monkeypatch.setitem(sys.modules, "onnxruntime", library)
    step = Step("one", lambda options: gpu_steps.require_onnxruntime(options) or {"measured": True})
    assert run_step(step, OPTIONS) == {"skipped": "onnxruntime 1.0 here is built without CUDA"}
    assert run_step(step, replace(OPTIONS, device="cpu")) == {"measured": True}
