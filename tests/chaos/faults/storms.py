"""Sends SIGTERM ten times at random moments: while the server loads, serves, or drains."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

from tests.chaos import judge
from tests.chaos.judge import Row
from tests.chaos.load import Load
from tests.chaos.operations import clients
from tests.chaos.served import Served
from tests.doubles.processes import running

SIGNALS, WITHIN_S, BOUND_S = 10, 1.5, 40.0


async def storm(moment: str, directory: Path, *, seed: int = 15) -> Row:
    """One storm. `moment`: loading, serving or draining."""
    row = Row(f"sigterm-storm-{moment}")
    served = Served(directory, wait=False)
    try:
        if moment == "loading":
            while served.alive() and not served.folders():
                await asyncio.sleep(0.02)  # a signal before it has read its modules ends it without a word
            await asyncio.sleep(random.Random(seed).uniform(0, 1.5))
            await _storm(served, row, seed)
            row.saw = (served.output.strip().splitlines() or ["no output"])[-1]
        else:
            await asyncio.to_thread(served.wait_ready)
            await _loaded(served, row, moment, seed)
    finally:
        await asyncio.to_thread(served.kill)
    return row


async def _loaded(served: Served, row: Row, moment: str, seed: int) -> None:
    async with clients(served.url, served.gateway) as asked:
        load = Load(asked)
        await load.learn()
        load.start()
        long = asyncio.ensure_future(asked.client.complete("long", max_tokens=1000))
        await asyncio.sleep(1.0)
        at = time.monotonic()
        if moment == "draining":
            served.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
        await _storm(served, row, seed)
        await load.stop()
        (cut,) = await asyncio.gather(long, return_exceptions=True)
    since = [one for one in load.outcomes if one.ended >= at and one.began < at]
    row.saw, row.lost = judge.seen(since), judge.lost(since)
    row.told_s = judge.told_s(since, at)
    if not isinstance(cut, Exception):
        row.missed.append("a stream of 15 s ended well")
    row.missed += [f"{one.kind} {one.what}: {one.error}" for one in since if one.what in ("hung", "wrong")]


async def _storm(served: Served, row: Row, seed: int) -> None:
    """The signals; then all of it has to be gone within the goal, with an exit status of 0."""
    rng = random.Random(seed)
    pids, folders = served.pids(), served.folders()
    times = sorted(rng.uniform(0, WITHIN_S) for _ in range(SIGNALS))
    began = last = time.monotonic()
    for at in times:
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        if served.alive():
            pids |= served.pids()
            folders += served.folders()
            served.process.send_signal(signal.SIGTERM)
            last = time.monotonic()
    while (served.alive() or any(map(running, pids))) and time.monotonic() - last < BOUND_S:
        await asyncio.sleep(0.01)
    row.stop_s = time.monotonic() - last
    if row.stop_s > judge.STOP_S:
        row.missed.append(f"SIGTERM took {row.stop_s:.1f} s")
    if served.process.returncode:
        row.missed.append(f"exit status {served.process.returncode}: {served.output.strip()[-200:]}")
    left = [*served.folders(), *(name for name in folders for _ in Path("/dev/shm").glob(f"{name}*"))]
    if left:
        row.missed.append(f"left behind: {left}")
