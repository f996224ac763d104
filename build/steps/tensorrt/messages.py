"""Keeps the log of TensorRT's builder, and makes Ctrl-C cancel a build.

The classes that TensorRT derives from are made inside functions: this module, and `--help` of the
scripts that use it, need no TensorRT.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, SupportsInt, TypeVar

from trimodal.build_support import console
from trimodal.errors import ArtefactError

if TYPE_CHECKING:
    import tensorrt

T = TypeVar("T")
KEPT = 50  # Messages: enough for the errors of one failed build.
# As TensorRT and CUDA word it: "OutOfMemory", "out of memory", "cudaErrorMemoryAllocation".
MEMORY = ("outofmemory", "out of memory", "memoryallocation", "failed_allocation", "alloc_failed")


class Messages:
    """Errors and warnings of the library's log, newest last."""

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=KEPT)
        self.warnings: deque[str] = deque(maxlen=KEPT)

    def last_errors(self, count: int = 3) -> str:
        """The last few errors in one line."""
        return (
            "; ".join(" ".join(error.split()) for error in list(self.errors)[-count:]) or "it did not say why"
        )

    def distinct_warnings(self) -> list[str]:
        """Each warning once, in one line."""
        return list(dict.fromkeys(" ".join(warning.split()) for warning in self.warnings))

    def out_of_memory(self) -> bool:
        """Whether one of the errors is about memory that could not be had."""
        return any(word in error.lower() for error in self.errors for word in MEMORY)


_hearing = Messages()  # of the last call of make_logger
_loggers: dict[type[object], tensorrt.ILogger] = {}


def make_logger(messages: Messages) -> tensorrt.ILogger:
    """The process's logger, from now on with errors and warnings kept in `messages`.

    TensorRT uses the first logger that it gets for all builders and runtimes, and ignores later ones.
    """
    global _hearing
    import tensorrt as trt

    class Log(trt.ILogger):
        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                _hearing.errors.append(msg)
            elif severity == trt.ILogger.Severity.WARNING:
                _hearing.warnings.append(msg)

    _hearing = messages
    if trt.ILogger not in _loggers:
        _loggers[trt.ILogger] = Log()
    return _loggers[trt.ILogger]


def run_cancellable(work: Callable[[], T], config: tensorrt.IBuilderConfig) -> T:
    """`work()`, a build with `config`, in a thread of its own, so that this one can act on Ctrl-C.

    Python runs signal handlers between its own instructions of the main thread, and a build
    would keep that thread inside the library for minutes.

    Raises:
        ArtefactError: Ctrl-C was pressed; `work` has ended at its next step.
    """
    import tensorrt as trt

    cancelled = threading.Event()

    class Monitor(trt.IProgressMonitor):
        """Called from the builder's threads, where an exception would end the process: none is raised."""

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: SupportsInt) -> None:
            """Nobody is told."""

        def step_complete(self, phase_name: str, step: SupportsInt) -> bool:
            return not cancelled.is_set()

        def phase_finish(self, phase_name: str) -> None:
            """Nobody is told."""

    config.progress_monitor = Monitor()
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon does not keep the process alive: a second Ctrl-C ends it at once.
    worker = threading.Thread(target=run, name="tensorrt-build", daemon=True)
    try:
        worker.start()
        return outcome.result()
    except KeyboardInterrupt:
        cancelled.set()
        console.print("cancelled: the builder stops after its present step (Ctrl-C again: at once)")
        wait([outcome])
        raise ArtefactError("the build was cancelled: nothing was written") from None
