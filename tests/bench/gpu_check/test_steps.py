"""Each step names what it needs: without that it is skipped with the name, and nothing else is."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from trimodal.bench.gpu_check import steps as gpu_steps
from trimodal.bench.gpu_check.part import PARTS
from trimodal.bench.gpu_check.steps import Run, Skipped, Step, require, require_served, run_step

RUN = Run("cuda", 0.01, 1, Path("nowhere"))


def listed():
    """Every step of every part, which would measure nothing."""
    for name in PARTS:
        for step in import_module(f"trimodal.bench.gpu_check.parts.{name}").STEPS:
            yield f"{name} {step.name}", replace(step, measure=lambda run: {"measured": True})


NEEDED = sorted({module for _, step in listed() for module in step.needs})


@pytest.fixture
def installed(monkeypatch):
    """Every library that a step needs, as an empty module; vLLM is only looked for."""
    for name in NEEDED:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(gpu_steps, "find_spec", sys.modules.get)


@pytest.mark.parametrize("library", NEEDED)
def test_without_a_library_its_steps_are_skipped_and_all_others_measured(installed, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    found = {name: run_step(step, RUN) for name, step in listed()}
    needy = {name for name, step in listed() if library in step.needs}
    assert needy
    for name, outcome in found.items():
        if name in needy:
            assert outcome == {"skipped": f"{library} is not installed"}
        else:
            assert outcome == {"measured": True}


def test_every_part_measures_something_with_torch_alone():
    for name in ("vision", "embedding", "llm", "interference"):
        steps = import_module(f"trimodal.bench.gpu_check.parts.{name}").STEPS
        assert any(tuple(step.needs) == ("torch",) and not step.gpu for step in steps)


def test_a_library_that_fails_in_its_own_way_is_skipped_too(tmp_path, monkeypatch):
    (tmp_path / "without_driver.py").write_text("raise RuntimeError('no driver\\nand a long story')\n")
    (tmp_path / "without_other.py").write_text("import another_one_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Skipped, match="^without_driver cannot be imported: RuntimeError: no driver$"):
        require(["without_driver"])
    sentence = "^without_other needs another_one_that_is_missing, which is not installed$"
    with pytest.raises(Skipped, match=sentence):
        require(["without_other"])


def test_a_rehearsal_leaves_out_what_needs_a_gpu():
    step = Step("one", lambda run: {"measured": True}, gpu=True)
    assert run_step(step, replace(RUN, device="cpu")) == {"skipped": "it needs a GPU"}
    assert run_step(step, RUN) == {"measured": True}


def test_the_wheel_s_triton_needs_numpy_below_2_and_nothing_else_does(tmp_path, monkeypatch):
    import numpy

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tritonserver").touch()
    monkeypatch.setenv("TRIMODAL_TRITONSERVER", str(tmp_path))
    monkeypatch.setattr(numpy, "__version__", "2.5.2")
    require_served(RUN)  # NVIDIA's own: its stub is built for the numpy that is there
    (tmp_path / "python_backend_stubs").mkdir()
    with pytest.raises(Skipped, match="numpy below 2, and 2.5.2 is here; bare engines alone"):
        require_served(RUN)
    monkeypatch.setattr(numpy, "__version__", "1.26.4")
    require_served(RUN)
    monkeypatch.setenv("TRIMODAL_TRITONSERVER", str(tmp_path / "nowhere"))
    with pytest.raises(Skipped, match="bare engines alone are measured"):
        require_served(RUN)
