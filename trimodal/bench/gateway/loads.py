"""Puts a load on one way and takes its times: clients in closed loops, or all requests at one moment."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.gateway.process import cpu_s
from trimodal.bench.gateway.ways import Run, Way

_LIMIT_S = 120.0


@dataclass
class Taken:
    """What one way did under one load, of all turns together; in seconds.

    Attributes:
        gaps: between the reads that had text, of all streams.
        cpu_s: of the process that the way costs.
    """

    ttft: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    deltas: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def deltas_per_s(self) -> float:
        return self.deltas / self.seconds if self.seconds else 0.0

    @property
    def deltas_per_core_s(self) -> float:
        """Deltas that one core could forward in a second, with the requests that they are part of."""
        return self.deltas / self.cpu_s if self.cpu_s else 0.0

    @property
    def cpu_ms(self) -> float:
        """Processor time of a request with all of its deltas."""
        return 1e3 * self.cpu_s / len(self.ttft) if self.ttft else 0.0

    def added_ms(self, before: Taken, percent: float) -> float:
        """Milliseconds that this percentile of the TTFT is later than on another way."""
        return milliseconds(self.ttft, percent) - milliseconds(before.ttft, percent)

    def take(self, runs: Sequence[Run], begin: float, end: float) -> None:
        """Takes in the requests sent, and the text that came, from `begin` to `end`."""
        self.seconds += end - begin
        for run in runs:
            if begin <= run.asked < end:
                self.ttft.append(run.ttft)
            previous = None
            for at, deltas in run.texts:
                if begin <= at < end:
                    self.deltas += deltas
                    if previous is not None:
                        self.gaps.append(at - previous)
                previous = at


@dataclass(frozen=True)
class Loop:
    """Clients that each send the next request when the last one has been answered.

    Each begins at a drawn time, asks for drawn numbers of tokens, and pauses for a drawn time before each
    request. Without a pause all would ask just after a step of the engine: its next step would hide what the
    way adds.

    Attributes:
        tokens: fewest and most of an answer.
        step_s: of the engine.
        seconds: that are counted, once all clients have begun.
    """

    streams: int
    tokens: tuple[int, int]
    step_s: float
    seconds: float

    async def run(self, way: Way, taken: Taken, seed: int) -> None:
        """Runs one turn; the same seed draws the same for every way. Raises: ServerError."""
        runs: list[Run] = []
        ramp = (sum(self.tokens) / 2 + 2) * self.step_s
        begin = time.perf_counter() + ramp
        end = begin + self.seconds

        async def client(number: int) -> None:
            draw = random.Random(f"{seed} {number}")
            await asyncio.sleep(draw.uniform(0, ramp))
            async with way.open() as ask:
                while time.perf_counter() < end:
                    await asyncio.sleep(draw.uniform(0, 2 * self.step_s))
                    runs.append(await ask(draw.randint(*self.tokens)))

        clients = asyncio.gather(*(client(number) for number in range(self.streams)))
        try:
            await asyncio.sleep(begin - time.perf_counter())
            before = _cpu_s(way)
            await asyncio.sleep(end - time.perf_counter())
            taken.cpu_s += _cpu_s(way) - before
            await asyncio.wait_for(clients, _LIMIT_S)
        finally:
            clients.cancel()
        taken.take(runs, begin, end)


@dataclass(frozen=True)
class Burst:
    """Requests that are all sent at one moment, on a connection each, with answers of one length."""

    streams: int
    tokens: int

    async def run(self, way: Way, taken: Taken, seed: int) -> None:
        """Runs one turn. Raises: ServerError."""

        async def client() -> Run:
            async with way.open() as ask:
                return await ask(self.tokens)

        before, begin = _cpu_s(way), time.perf_counter()
        runs = await asyncio.wait_for(asyncio.gather(*(client() for _ in range(self.streams))), _LIMIT_S)
        taken.cpu_s += _cpu_s(way) - before
        taken.take(runs, begin, time.perf_counter())


def _cpu_s(way: Way) -> float:
    return 0.0 if way.pid is None else cpu_s(way.pid)
