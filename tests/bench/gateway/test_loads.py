"""The loads, on a way that answers at a set pace."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from trimodal.bench.gateway.loads import Burst, Loop, Taken
from trimodal.bench.gateway.ways import Ask, Run, Way


class Recorder:
    """A way whose answers take a moment; notes when and how much was asked, and on how many connections."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []
        self.opened = self.running = self.most = 0
        self.way = Way("fake", self.open, os.getpid())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Ask]:
        self.opened += 1
        yield self.ask

    async def ask(self, tokens: int) -> Run:
        run = Run()
        self.asked.append((run.asked, tokens))
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(tokens):
            await asyncio.sleep(0.001)
            run.note(1)
        self.running -= 1
        return run


async def test_a_loop_draws_lengths_and_keeps_its_connections() -> None:
    recorder, taken = Recorder(), Taken()
    await Loop(4, (2, 6), 0.02, 0.3).run(recorder.way, taken, seed=1)
    assert recorder.opened == 4
    assert recorder.most <= 4
    tokens = [count for _, count in recorder.asked]
    assert set(tokens) == {2, 3, 4, 5, 6}
    assert 0 < len(taken.ttft) < len(recorder.asked), "what was asked before all had begun is not counted"
    assert 0 < taken.deltas <= sum(tokens)
    assert taken.seconds == pytest.approx(0.3)


async def test_the_same_seed_draws_the_same() -> None:
    drawn = []
    for seed in (1, 1, 2):
        recorder = Recorder()
        await Loop(1, (2, 60), 0.001, 0.2).run(recorder.way, Taken(), seed)
        drawn.append([count for _, count in recorder.asked][:2])
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


async def test_a_burst_asks_for_all_at_once() -> None:
    recorder, taken = Recorder(), Taken()
    began = time.perf_counter()
    await Burst(8, 5).run(recorder.way, taken, seed=0)
    assert recorder.opened == recorder.most == 8
    assert (len(taken.ttft), taken.deltas) == (8, 40)
    assert all(at - began < 0.5 for at, _ in recorder.asked)


def test_only_the_window_counts() -> None:
    taken = Taken()
    early = Run(0.5, [(0.9, 1), (1.1, 2), (1.4, 1)])
    late = Run(1.5, [(1.75, 1), (2.5, 1)])
    after = Run(2.1, [(2.2, 1)])
    taken.take([early, late, after], 1.0, 2.0)
    assert taken.ttft == [0.25]
    assert taken.deltas == 4
    assert taken.gaps == pytest.approx([0.2, 0.3])
    assert taken.deltas_per_s == 4
