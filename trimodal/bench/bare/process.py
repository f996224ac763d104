"""Runs an engine in a process of its own, one batch after the other: the best that a server could become."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trimodal.bench.common.samples import batch_of
from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import Record
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import OperatorError, RequestError
from trimodal.metrics import MemoryMetrics
from trimodal.vision.artefact import read_classifier
from trimodal.vision.settings import VisionSettings

# Runs batch number n of this size.
Work = Callable[[int, int], object]
# A run ends after this many batches however long it was to last: its records go through a pipe.
MOST_BATCHES = 20_000
_START_S = 120.0
_GRACE_S = 60.0


def run_alone(work: Work, *, batch: int, seconds: float) -> LoadRun:
    """Runs batches in this thread: one to warm up, then for `seconds`."""
    work(batch, 0)
    records: list[Record] = []
    began = at = time.perf_counter()
    while at - began < seconds and len(records) < MOST_BATCHES:
        work(batch, len(records) + 1)
        now = time.perf_counter()
        one = Record(number=0, due=at, sent=at, pieces=(now,), ended=now, items=batch)
        records.append(one.since(began, len(records)))
        at = now
    return LoadRun(tuple(records), 0.0, at - began)


class BareProcess(AbstractContextManager["BareProcess"]):
    """Opens an engine in a new process and runs it there.

    Args:
        opener: makes the work; called in the process with `arguments`, so both are pickled.
    """

    def __init__(self, opener: Callable[..., Work], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, opener, arguments), daemon=True)
        self._process.start()
        other.close()

    async def run(self, *, batch: int, seconds: float) -> LoadRun:
        """Runs batches of `batch` items for so long.

        Raises:
            OperatorError: the engine cannot be opened or failed; says why.
        """
        return await asyncio.to_thread(self._run, batch, seconds)

    def _run(self, batch: int, seconds: float) -> LoadRun:
        try:
            self._pipe.send((batch, seconds))
            if not self._pipe.poll(_START_S + seconds + _GRACE_S):
                raise OperatorError("the bare engine's process does not answer")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise OperatorError("the bare engine's process died") from None
        if isinstance(answer, LoadRun):
            return answer
        raise OperatorError(f"the bare engine failed: {answer}")

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5.0)


def _serve(pipe: Connection, opener: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
    work: Work | None = None
    while True:
        try:
            batch, seconds = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            work = work or opener(*arguments)
            answer: LoadRun | str = run_alone(work, batch=batch, seconds=seconds)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)


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


def open_embedding(directory: Path, settings: EmbeddingSettings, texts: Sequence[str]) -> Work:
    """The embedder on a batch of texts."""
    from trimodal.embedding.engines.protocol import open_engine

    engine = open_engine(directory, settings)
    return lambda batch, number: engine.embed(batch_of(texts, number, batch))
