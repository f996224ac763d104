"""build/steps/tensorrt/messages.py: the log is kept, and Ctrl-C can end a build."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tests.builders.scripts import Later

messages = Later("steps.tensorrt.messages")


def test_the_logger_keeps_errors_and_warnings(tensorrt_double):
    kept = messages.Messages()
    logger, severities = messages.make_logger(kept), tensorrt_double.module.ILogger.Severity
    assert isinstance(logger, tensorrt_double.module.ILogger)
    for name in ("VERBOSE", "INFO", "WARNING", "ERROR", "INTERNAL_ERROR"):
        logger.log(severity=getattr(severities, name), msg=f"a {name}")
    assert list(kept.errors) == ["a ERROR", "a INTERNAL_ERROR"]
    assert list(kept.warnings) == ["a WARNING"]
    assert kept.last_errors(1) == "a INTERNAL_ERROR"
    assert not kept.out_of_memory()


def test_one_logger_serves_the_process_and_tells_who_asked_last(tensorrt_double):
    """TensorRT ignores a second one, so that what went wrong would be told to nobody."""
    first, second = messages.Messages(), messages.Messages()
    logger = messages.make_logger(first)
    logger.log(tensorrt_double.module.ILogger.Severity.ERROR, "one")
    assert messages.make_logger(second) is logger
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
def test_memory_is_recognised_in_the_log(line):
    kept = messages.Messages()
    kept.errors.append(line)
    assert kept.out_of_memory()


def test_work_runs_beside_the_main_thread_and_its_result_and_errors_come_back(tensorrt_double):
    config = SimpleNamespace()
    assert messages.run_cancellable(lambda: threading.current_thread().name, config) == "tensorrt-build"
    with pytest.raises(ZeroDivisionError):
        messages.run_cancellable(lambda: 1 / 0, config)
    assert isinstance(config.progress_monitor, tensorrt_double.module.IProgressMonitor)
    assert config.progress_monitor.step_complete("Building", 1) is True
