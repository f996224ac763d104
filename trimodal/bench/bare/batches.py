"""Runs an engine in this process, one batch after the other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from trimodal.bench.load.generator import MOST_REQUESTS, LoadRun
from trimodal.bench.load.records import Record
from trimodal.bench.samples import batch_of
from trimodal.errors import OperatorError, RequestError
from trimodal.metrics import MemoryMetrics
from trimodal.vision.artefact import read_classifier
from trimodal.vision.settings import VisionSettings

# Runs batch number n of this size.
Work = Callable[[int, int], object]
_LIMIT_S = 180.0  # to open the engine, or for a batch
_ENDING_S = 5.0  # for the batch that an interruption finds


def run_alone(
    work: Work,
    records: list[Record],
    *,
    batch: int,
    seconds: float = 0.0,
    batches: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> LoadRun:
    """Runs batches in this thread: one to warm up, then for `seconds`, or so many, or until `stop()`.

    Args:
        records: gets one of each batch when it has ended.
    """
    work(batch, 0)
    stopped = ""
    began = at = time.perf_counter()
    while len(records) < batches if batches else at - began < seconds:
        if stop() or len(records) >= MOST_REQUESTS:
            stopped = "interrupted" if stop() else f"{MOST_REQUESTS} batches were run: no run keeps more"
            break
        work(batch, len(records) + 1)
        now = time.perf_counter()
        one = Record(number=0, due=at, sent=at, pieces=[now], ended=now, items=batch)
        records.append(one.since(began, len(records)))
        at = now
    return LoadRun(tuple(records), 0.0, max(at - began, 1e-9), stopped=stopped)


class BareBatches:
    """An engine that `opener` opens when it first runs."""

    def __init__(self, opener: Callable[[], Work]) -> None:
        self._opener = opener
        self._work: Work | None = None

    async def run(
        self, *, batch: int, seconds: float = 0.0, batches: int = 0, stop: asyncio.Event | None = None
    ) -> LoadRun:
        """Runs batches of `batch` items for so long, or so many, in a thread that a hanging engine may keep.

        Args:
            stop: ends the run when it is set; what was measured is returned.

        Raises:
            OperatorError: the engine cannot be opened, failed or hangs; says why.
        """
        done: Future[LoadRun] = Future()
        done.set_running_or_notify_cancel()  # so that nobody who stops waiting cancels it
        records: list[Record] = []
        over = threading.Event()

        def work() -> None:
            try:
                self._work = self._work or self._opener()
                alone = partial(run_alone, self._work, records, batch=batch, stop=over.is_set)
                done.set_result(alone(seconds=seconds, batches=batches))
            except Exception as error:
                done.set_exception(OperatorError(f"the bare engine failed: {type(error).__name__}: {error}"))

        threading.Thread(target=work, name="bench-bare", daemon=True).start()
        running = asyncio.wrap_future(done)
        stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
        either: tuple[asyncio.Future[Any], ...] = running, stopping
        try:
            while not running.done():
                known = len(records)
                await asyncio.wait(either, timeout=_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    over.set()
                    await asyncio.wait([running], timeout=_ENDING_S)
                    break
                if not running.done() and len(records) == known:
                    raise OperatorError("the bare engine does not answer")
            return running.result() if running.done() else LoadRun((), 0.0, 1e-9, stopped="interrupted")
        finally:
            over.set()
            stopping.cancel()
            running.cancel()


def open_vision(version: Path, settings: VisionSettings, files: Sequence[bytes]) -> Work:
    """All of vision on a batch of image files: decoded, classified, ranked."""
    from trimodal.vision.engines.protocol import open_engine, runtime_of
    from trimodal.vision.steps import VisionStep

    artefact = read_classifier((version / settings.artefact).resolve(), runtime=runtime_of(settings.engine))
    step = VisionStep(open_engine(artefact, settings), artefact, settings, MemoryMetrics())

    def run(batch: int, number: int) -> None:
        (answer,) = step.classify([batch_of(files, number, batch)])
        if isinstance(answer, RequestError):
            raise answer

    return run
