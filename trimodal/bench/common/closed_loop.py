"""Runs closed loops: clients that each send the next request when the last one is answered, and a bare side.

One request answers one batch of items (images, texts, windows of speech).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, TypeVar

from trimodal.bench.load.arrivals import Closed
from trimodal.bench.load.generator import Run, run
from trimodal.bench.load.records import Record
from trimodal.bench.load.statistics import Rates
from trimodal.client.timing import percentile
from trimodal.errors import OperatorError

# A round ends after this many requests however long it was to last: what is kept in memory stays small.
MOST_REQUESTS = 20_000
One = TypeVar("One")
# Kind of work → the call that does number n of it with a batch of this size.
Works = Mapping[str, Callable[[int, int], object]]
_START_S = 120.0
_GRACE_S = 60.0


@dataclass(frozen=True)
class LoopRound:
    """One side for a while: items a second, the latency of every request in seconds, and its run."""

    rate: float
    latencies: tuple[float, ...]
    run: Run | None = None

    @property
    def p50(self) -> float:
        return percentile(self.latencies, 50) or 0.0


@dataclass(frozen=True)
class LoopSummary:
    """Several rounds of one side: the median round's rate, percentiles of all latencies in milliseconds."""

    rate: float
    p50: float
    p95: float
    p99: float
    requests: int


def summarise_loops(rounds: Sequence[LoopRound]) -> LoopSummary:
    """Summarises at least one round."""
    latencies = [latency for one in rounds for latency in one.latencies]
    p50, p95, p99 = (milliseconds(latencies, percent) for percent in (50, 95, 99))
    return LoopSummary(median_rate(rounds), p50, p95, p99, len(latencies))


def median_rate(rounds: Sequence[LoopRound]) -> float:
    return median(one.rate for one in rounds)


def milliseconds(seconds: Sequence[float], percent: float) -> float:
    """Returns a percentile of times; 0 without any."""
    return 1e3 * (percentile(seconds, percent) or 0.0)


def paired_ratio(ours: Sequence[One], theirs: Sequence[One], value: Callable[[One], float]) -> float:
    """Median over pairs of neighbouring rounds: what drifts in both cancels out."""
    return median(value(our) / value(their) for our, their in zip(ours, theirs, strict=True))


def rate_ratio(ours: Sequence[LoopRound], theirs: Sequence[LoopRound]) -> float:
    return paired_ratio(ours, theirs, lambda one: one.rate)


def added_ms(ours: Sequence[LoopRound], theirs: Sequence[LoopRound]) -> float:
    """Milliseconds by which the median request of ours takes longer, the median of neighbouring rounds."""
    return 1e3 * median(our.p50 - their.p50 for our, their in zip(ours, theirs, strict=True))


def some(items: Sequence[One], number: int, batch: int) -> list[One]:
    """Returns the items of request `number`: each request other ones, in a ring."""
    return [items[(number * batch + index) % len(items)] for index in range(batch)]


def loop_round(run: Run) -> LoopRound:
    """What a run of batches came to: latencies of the requests of its window, of all when there are none."""
    records = run.counted or run.records
    return LoopRound(Rates([run]).items_per_s, tuple(record.service for record in records), run)


async def run_clients(
    ask: Callable[[int], Awaitable[object]], *, clients: int, items: int, seconds: float
) -> LoopRound:
    """`clients` tasks call `ask` one after the other for `seconds`, after a quarter of that to get going.

    Args:
        ask: sends request number n and waits for its answer; an error ends the round.
        items: in each request.
    """
    clock = asyncio.get_running_loop().time

    async def send(number: int) -> Record:
        at = clock()
        await ask(number)
        return _answered(at, clock(), items)

    arrivals = Closed(clients)
    return loop_round(await run(send, arrivals, seconds=seconds, warmup=seconds / 4, most=MOST_REQUESTS))


def run_alone(work: Callable[[int], object], *, items: int, seconds: float) -> LoopRound:
    """Runs one caller in this thread: `work` once to warm up, then for `seconds`."""
    work(0)
    records: list[Record] = []
    began = at = time.perf_counter()
    while at - began < seconds and len(records) < MOST_REQUESTS:
        work(len(records) + 1)
        now = time.perf_counter()
        records.append(_answered(at, now, items).since(began, len(records)))
        at = now
    return loop_round(Run(tuple(records), 0.0, at - began, concurrency=1))


def _answered(sent: float, ended: float, items: int) -> Record:
    return Record(number=0, due=sent, sent=sent, pieces=(ended,), ended=ended, items=items)


class BareProcess(AbstractContextManager["BareProcess"]):
    """Opens the works in a new process and runs rounds of them.

    Args:
        opener: makes the works; called in the process with `arguments`, so both are pickled.
    """

    def __init__(self, opener: Callable[..., Works], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, opener, arguments), daemon=True)
        self._process.start()
        other.close()

    async def run(self, kind: str, *, batch: int, seconds: float) -> LoopRound:
        """Runs a round of `kind` in batches of `batch` items.

        Raises:
            OperatorError: the works cannot be opened or failed; says why.
        """
        return await asyncio.to_thread(self._run, kind, batch, seconds)

    def _run(self, kind: str, batch: int, seconds: float) -> LoopRound:
        try:
            self._pipe.send((kind, batch, seconds))
            if not self._pipe.poll(_START_S + seconds + _GRACE_S):
                raise OperatorError("the bare engine's process does not answer")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise OperatorError("the bare engine's process died") from None
        if isinstance(answer, LoopRound):
            return answer
        raise OperatorError(f"the bare engine failed: {answer}")

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5.0)


def _serve(pipe: Connection, opener: Callable[..., Works], arguments: tuple[Any, ...]) -> None:
    works: Works | None = None
    while True:
        try:
            kind, batch, seconds = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            works = opener(*arguments) if works is None else works
            work = works[kind]
            answer: LoopRound | str = run_alone(
                lambda number, work=work, batch=batch: work(batch, number),  # type: ignore[misc]
                items=batch,
                seconds=seconds,
            )
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
