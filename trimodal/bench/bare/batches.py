"""Runs an engine in this process, one batch after the other: the best that a server could become."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import Record
from trimodal.bench.samples import batch_of
from trimodal.errors import OperatorError, RequestError
from trimodal.metrics import MemoryMetrics
from trimodal.vision.artefact import read_classifier
from trimodal.vision.settings import VisionSettings

# Runs batch number n of this size.
Work = Callable[[int, int], object]
MOST_BATCHES = 20_000  # of a run, however long it was to last
_LIMIT_S = 180.0  # beyond the time that a run is to last: to open the engine, and for the last batch


def run_alone(work: Work, *, batch: int, seconds: float) -> LoadRun:
    """Runs batches in this thread: one to warm up, then for `seconds`."""
    work(batch, 0)
    records: list[Record] = []
    began = at = time.perf_counter()
    while at - began < seconds and len(records) < MOST_BATCHES:
        work(batch, len(records) + 1)
        now = time.perf_counter()
        one = Record(number=0, due=at, sent=at, pieces=[now], ended=now, items=batch)
        records.append(one.since(began, len(records)))
        at = now
    return LoadRun(tuple(records), 0.0, at - began)


class BareBatches:
    """An engine that `opener` opens when it first runs."""

    def __init__(self, opener: Callable[[], Work]) -> None:
        self._opener = opener
        self._work: Work | None = None

    async def run(self, *, batch: int, seconds: float) -> LoadRun:
        """Runs batches of `batch` items for so long, in a thread that a hanging engine may keep.

        Raises:
            OperatorError: the engine cannot be opened, failed or hangs; says why.
        """
        done: Future[LoadRun] = Future()
        done.set_running_or_notify_cancel()  # so that nobody who stops waiting cancels it

        def work() -> None:
            try:
                self._work = self._work or self._opener()
                done.set_result(run_alone(self._work, batch=batch, seconds=seconds))
            except Exception as error:
                done.set_exception(OperatorError(f"the bare engine failed: {type(error).__name__}: {error}"))

        threading.Thread(target=work, name="bench-bare", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), seconds + _LIMIT_S)
        except asyncio.TimeoutError:
            raise OperatorError("the bare engine does not answer") from None


def open_vision(version: Path, settings: VisionSettings, files: Sequence[bytes]) -> Work:
    """All of vision on a batch of image files: decoded, classified, ranked."""
    from trimodal.vision.engines.protocol import open_engine, runtime_of
    from trimodal.vision.steps import VisionStep

    artefact = read_classifier((version / settings.artefact).resolve(), runtime=runtime_of(settings.engine))
    step = VisionStep.on(open_engine(artefact, settings), artefact, settings, MemoryMetrics())

    def run(batch: int, number: int) -> None:
        (answer,) = step.classify([batch_of(files, number, batch)])
        if isinstance(answer, RequestError):
            raise answer

    return run
