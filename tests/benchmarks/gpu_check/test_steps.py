"""A step that cannot be measured is skipped with the reason, and nothing else is."""

from dataclasses import replace
from importlib import import_module

import pytest

from benchmarks.gpu_check import steps as gpu_steps
from benchmarks.gpu_check.steps import PARTS, Options, run_step

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
