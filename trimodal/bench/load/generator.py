"""Says when requests are due, sends them, and keeps a record of each.

An open loop sends when a request is due, however many are unanswered; a closed one asks less as soon as the
server slows down, and so hides what a user would wait.

All times are of the event loop's clock, so a loop with a clock of its own makes a run exact. What the
generator itself cost is measured along with it: its share of a core, and how late the loop ran.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import random
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimodal.bench.load.records import TIMEOUT, UNREACHABLE, UNSENT, Record

# Sends request number n and waits for its end. Times in the record are of the event loop's clock; `number`
# and `due` are set by the generator. What the server refuses is an outcome; an exception ends the run.
Send = Callable[[int], Awaitable[Record]]

MOST_REQUESTS = 1_000_000  # of a run: records are kept in memory
MAX_IN_FLIGHT = 4096
DRAIN_S = 120.0
DEAD_S = 3.0  # without any answer, while every request finds no server
_ENDING_S = 0.5  # for requests that an interruption finds near their end
_AGAIN_S = 0.1  # until a client of a closed loop tries again where no server answered
_LOOK_S = 0.02


@dataclass(frozen=True)
class Closed:
    """So many clients that each send the next request when the last one is answered."""

    concurrency: int


Arrivals = Closed | Iterable[float]  # open: when each request is due, seconds from the run's begin, rising


def poisson(rate: float, seed: int = 0) -> Iterator[float]:
    """A Poisson process: `rate` a second on average, each request independent of the others."""
    rng = random.Random(seed)
    at = 0.0
    while True:
        at += rng.expovariate(rate)
        yield at


@dataclass(frozen=True)
class LoadRun:
    """All requests of a run; times in seconds from its begin.

    Attributes:
        records: in the order in which they ended, those of the warm-up too.
        began: where the counted window begins: what was due before is warm-up.
        seconds: how long the window is.
        first: number of the first counted request.
        unfinished: requests that were cut off when the run was stopped; they have no record.
        stopped: why the run ended before its time; empty: it did not.
        cpu_share: processor time of this process in the window over its time: near 1 it measures itself.
        loop_lag: how late the event loop ran in the window, seconds, looked at every 20 ms: p99.
    """

    records: tuple[Record, ...]
    began: float
    seconds: float
    first: int = 0
    unfinished: int = 0
    stopped: str = ""
    cpu_share: float = 0.0
    loop_lag: float = 0.0

    @property
    def counted(self) -> tuple[Record, ...]:
        """The requests that were due in the window."""
        end = self.began + self.seconds
        return tuple(
            record
            for record in self.records
            if record.number >= self.first and self.began <= record.due <= end
        )


async def run(
    send: Send,
    arrivals: Arrivals,
    *,
    seconds: float = 0.0,
    requests: int = 0,
    warmup: float = 0.0,
    max_in_flight: int = MAX_IN_FLIGHT,
    drain_s: float = DRAIN_S,
    stop: asyncio.Event | None = None,
) -> LoadRun:
    """Runs for `seconds`, or until `requests` were answered, or to the end of the arrivals.

    With `seconds` the window is that long, and requests that are under way at its end are waited for; with
    `requests` it lasts from the first counted one's due time until the last one's end.

    Args:
        warmup: what is sent first and not counted: seconds with `seconds`, else a number of requests.
        max_in_flight: requests of an open loop that may be under way together; one more is UNSENT.
        drain_s: how long it is waited for the last ones; then they are TIMEOUT.
        stop: ends the run when it is set; what was measured is returned.
    """
    return await _Running(send, arrivals, seconds, requests, warmup, max_in_flight, drain_s).run(stop)


@dataclass
class _Running:
    send: Send
    arrivals: Arrivals
    seconds: float
    requests: int
    warmup: float
    max_in_flight: int
    drain_s: float
    records: list[Record] = field(default_factory=list)
    under_way: dict[asyncio.Task[None], tuple[int, float]] = field(default_factory=dict)
    clients: list[asyncio.Task[None]] = field(default_factory=list)
    looked: array[float] = field(default_factory=lambda: array("d"))
    spent: array[float] = field(default_factory=lambda: array("d"))
    unreachable_since: float | None = None
    over: bool = False
    stopped: str = ""

    def __post_init__(self) -> None:
        self.length = self.warmup + self.seconds if self.seconds else math.inf
        self.most = int(self.warmup) + self.requests if self.requests else math.inf
        self.clock = asyncio.get_running_loop().time
        self.began = 0.0
        self.dead = asyncio.Event()

    async def run(self, stop: asyncio.Event | None) -> LoadRun:
        gc.collect()
        gc.freeze()  # what is there already need not be looked at again: a collection would be a lag
        self.began = self.clock()
        sending = asyncio.create_task(self._drive())
        ends = [asyncio.create_task(event.wait()) for event in (self.dead, stop) if event]
        watching = asyncio.create_task(self._watch_loop())
        try:
            await asyncio.wait([sending, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self.stopped = self.stopped or "interrupted"
            elif fault := sending.exception():
                raise fault
        finally:
            unfinished = len(self.under_way)
            ended = self._look()
            self.over = True  # clients stop after the request that they have
            await _cancel([sending, watching, *ends])
            if self.under_way:
                # Of requests that are cancelled while they complete Triton (2.51) keeps some for good.
                counted = len(self.records)
                await asyncio.wait(self.under_way, timeout=_ENDING_S)
                del self.records[counted:]
            await _cancel([*self.clients, *self.under_way])
            gc.unfreeze()
        return self._made(ended, unfinished)

    async def _drive(self) -> None:
        if isinstance(self.arrivals, Closed):
            numbers = itertools.count()
            tasks = [asyncio.create_task(self._client(numbers)) for _ in range(self.arrivals.concurrency)]
            self.clients = tasks
            rest = self.length + self.drain_s
        else:
            tasks = await self._open(self.arrivals)
            rest = self.drain_s
        if tasks:
            done, _ = await asyncio.wait(
                tasks, timeout=None if math.isinf(rest) else rest, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
        late, self.under_way = self.under_way, {}
        await _cancel(list(late))
        for number, due in late.values():
            error = f"no end within {self.drain_s:g} s after the run"
            record = Record(number, due, due, [], self.clock(), TIMEOUT, error)
            self._note(record.since(self.began, number, due))

    async def _client(self, numbers: itertools.count[int]) -> None:
        me = asyncio.current_task()
        assert me
        for number in numbers:
            at = self.clock()
            if self.over or at - self.began >= self.length or self._enough(number, at - self.began):
                return
            self.under_way[me] = number, at
            await self._one(number, None)
            del self.under_way[me]
            if self.unreachable_since is not None:
                await asyncio.sleep(_AGAIN_S)

    async def _open(self, dues: Iterable[float]) -> list[asyncio.Task[None]]:
        """Sends when it is due; returns what is still under way at the end, and what failed."""
        failed: list[asyncio.Task[None]] = []

        def ended(task: asyncio.Task[None]) -> None:
            self.under_way.pop(task, None)
            if not task.cancelled() and task.exception():
                failed.append(task)

        for number, at in enumerate(dues):
            if at >= self.length or failed or self._enough(number, at):
                break
            due = self.began + at
            # Sleeps even when it is late already: without a pause no answer would be read.
            await asyncio.sleep(max(0.0, due - self.clock()))
            if len(self.under_way) >= self.max_in_flight:
                now = self.clock()
                error = f"{self.max_in_flight} requests were under way"
                self._note(Record(number, due, now, [], now, UNSENT, error).since(self.began, number, due))
                continue
            task = asyncio.create_task(self._one(number, due))
            self.under_way[task] = number, due
            task.add_done_callback(ended)
        if not math.isinf(self.length) and not failed:
            await asyncio.sleep(max(0.0, self.began + self.length - self.clock()))
        return failed or list(self.under_way)

    def _enough(self, number: int, at: float) -> bool:
        """Whether this request, of a time from the run's begin, is one too many."""
        if number < min(self.most, MOST_REQUESTS):
            return False
        if number < self.most:
            self.stopped = self.stopped or f"{MOST_REQUESTS} requests were sent: no run keeps more"
            self.length = min(self.length, at)
        return True

    async def _one(self, number: int, due: float | None) -> None:
        record = await self.send(number)
        self._note(record.since(self.began, number, due))

    def _note(self, record: Record) -> None:
        self.records.append(record)
        if record.outcome != UNREACHABLE:
            self.unreachable_since = None
            return
        if self.unreachable_since is None:
            self.unreachable_since = record.ended  # one that was long under way may be alone
        if record.ended - self.unreachable_since >= DEAD_S and not self.dead.is_set():
            self.stopped = f"no answer for {DEAD_S:g} s: {record.error}"
            self.dead.set()

    async def _watch_loop(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> float:
        self.looked.append(self.clock() - self.began)
        self.spent.append(time.process_time())
        return self.looked[-1]

    def _cost(self, began: float, until: float) -> tuple[float, float]:
        """Its share of a core, and how late the loop ran (p99), between two times.

        Nothing of what is before or behind the window: while the last answers are waited for nothing is sent.
        """
        first = max(0, bisect_right(self.looked, began) - 1)
        last = min(len(self.looked) - 1, bisect_left(self.looked, until))
        if first >= last:
            return 0.0, 0.0
        lags = sorted(later - at - _LOOK_S for at, later in pairwise(self.looked[first : last + 1]))
        seconds = max(self.looked[last] - self.looked[first], 1e-9)
        share = (self.spent[last] - self.spent[first]) / seconds
        return share, max(0.0, lags[int(0.99 * (len(lags) - 1))])

    def _made(self, ended: float, unfinished: int) -> LoadRun:
        began, first = min(self.warmup, ended), 0
        if not self.seconds:
            first = int(self.warmup)
            counted = [record.due for record in self.records if record.number >= first]
            began = min(counted, default=ended)
        until = min(ended, self.length) if self.seconds else ended
        cpu_share, loop_lag = self._cost(began, until)
        return LoadRun(
            records=tuple(self.records),
            began=began,
            seconds=max(until - began, 1e-9),
            first=first,
            unfinished=unfinished,
            stopped=self.stopped,
            cpu_share=cpu_share,
            loop_lag=loop_lag,
        )


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
