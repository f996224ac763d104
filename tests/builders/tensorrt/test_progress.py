"""build/steps/tensorrt/progress.py: phases as bars, the log kept, work that Ctrl-C can end."""

from __future__ import annotations

import importlib
import io
import threading
from collections.abc import Iterator
from types import ModuleType

import pytest
from rich.console import Console
from rich.progress import Progress

from tests.builders.scripts import importable


@pytest.fixture
def progress() -> Iterator[ModuleType]:
    with importable():
        yield importlib.import_module("steps.tensorrt.progress")


@pytest.fixture
def display() -> Progress:
    return Progress(console=Console(file=io.StringIO()))


def shown(display: Progress) -> list[tuple[str, float, float | None]]:
    return [(task.description, task.completed, task.total) for task in display.tasks]


def test_outer_phases_are_shown_and_a_cancelled_build_is_told_at_every_step(progress, display):
    phases = progress.Phases(display)
    phases.start("Building Engine", "", 5)
    phases.start("Computing profile 0", "Building Engine", 3)
    assert phases.step("Computing profile 0", 0) is True
    assert phases.step("never began", 3) is True, "an exception here would end the process"
    phases.cancelled.set()
    assert phases.step("Building Engine", 1) is False
    assert shown(display) == [("Building Engine", 2, 5)]


def test_the_monitor_hands_on_the_librarys_calls(progress, display, tensorrt_double):
    phases = progress.Phases(display)
    monitor = progress.make_monitor(phases)
    assert isinstance(monitor, tensorrt_double.module.IProgressMonitor)
    monitor.phase_start(phase_name="Building Engine", parent_phase="", num_steps=2)
    assert monitor.step_complete(phase_name="Building Engine", step=0) is True
    monitor.phase_finish(phase_name="Building Engine")
    assert shown(display) == [("Building Engine", 1, 2)]


def test_the_logger_keeps_errors_and_warnings(progress, tensorrt_double):
    messages = progress.Messages()
    logger, severities = progress.make_logger(messages), tensorrt_double.module.ILogger.Severity
    assert isinstance(logger, tensorrt_double.module.ILogger)
    for name in ("VERBOSE", "INFO", "WARNING", "ERROR", "INTERNAL_ERROR"):
        logger.log(severity=getattr(severities, name), msg=f"a {name}")
    assert list(messages.errors) == ["a ERROR", "a INTERNAL_ERROR"]
    assert list(messages.warnings) == ["a WARNING"]
    assert messages.last_errors(1) == "a INTERNAL_ERROR"
    assert not messages.out_of_memory()


def test_one_logger_serves_the_process_and_tells_who_asked_last(progress, tensorrt_double):
    """TensorRT ignores a second one, so that what went wrong would be told to nobody."""
    first, second = progress.Messages(), progress.Messages()
    logger = progress.make_logger(first)
    logger.log(tensorrt_double.module.ILogger.Severity.ERROR, "one")
    assert progress.make_logger(second) is logger
    logger.log(tensorrt_double.module.ILogger.Severity.ERROR, "two")
    assert (list(first.errors), list(second.errors)) == (["one"], ["two"])


@pytest.mark.parametrize(
    "line",
    [
        "[virtualMemoryBuffer.cpp::resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 9.)",
        "Error Code 1: Cuda Runtime (out of memory)",
        "Error Code 10: Internal Error (cudaErrorMemoryAllocation)",
    ],
)
def test_memory_is_recognised_in_the_log(progress, line):
    messages = progress.Messages()
    messages.errors.append(line)
    assert messages.out_of_memory()


def test_work_runs_beside_the_main_thread_and_its_result_and_errors_come_back(progress):
    cancelled = threading.Event()
    assert progress.run_cancellable(lambda: threading.current_thread().name, cancelled) == "tensorrt-build"
    with pytest.raises(ZeroDivisionError):
        progress.run_cancellable(lambda: 1 / 0, cancelled)
    assert not cancelled.is_set()
