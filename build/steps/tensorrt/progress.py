"""Shows what TensorRT's builder does: keeps its log, draws its phases as bars, makes Ctrl-C cancel the build.

The classes that TensorRT derives from are made inside functions: this module, and `--help` of the
scripts that use it, need no TensorRT.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, SupportsInt, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

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


class Phases:
    """The builder's outermost phases as bars; `cancelled`, once set, ends the build at its next step.

    The builder calls from threads of its own, and an exception there would end the process: none is raised.
    """

    def __init__(self, display: Progress) -> None:
        self.cancelled = threading.Event()
        self._display = display
        self._bars: dict[str, TaskID] = {}

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """`name` begins, with `steps` to do; of those inside a `parent` there are hundreds."""
        if not parent:
            self._bars[name] = self._display.add_task(name, total=max(steps, 1))

    def step(self, name: str, step: int) -> bool:
        """Step number `step`, from 0, is done; False asks the builder to stop."""
        if name in self._bars:
            self._display.update(self._bars[name], completed=step + 1)
        return not self.cancelled.is_set()


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


def make_monitor(phases: Phases) -> tensorrt.IProgressMonitor:
    """TensorRT's calls, handed to `phases`."""
    import tensorrt as trt

    class Monitor(trt.IProgressMonitor):
        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: SupportsInt) -> None:
            phases.start(phase_name, parent_phase, int(num_steps))

        def step_complete(self, phase_name: str, step: SupportsInt) -> bool:
            return phases.step(phase_name, int(step))

        def phase_finish(self, phase_name: str) -> None:
            """Its last step was told."""

    return Monitor()


@contextmanager
def shown_phases() -> Iterator[Phases]:
    """Bars on the screen for as long as the block runs."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as display:
        yield Phases(display)


def run_cancellable(work: Callable[[], T], cancelled: threading.Event) -> T:
    """`work()` in a thread of its own, so that this one can act on Ctrl-C: it sets `cancelled` and waits.

    Python runs signal handlers between its own instructions of the main thread, and a build
    would keep that thread inside the library for minutes.

    Raises:
        ArtefactError: Ctrl-C was pressed; `work` has ended.
    """
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
