"""Stops processes one after the other at random moments for good: the launcher has to heal the server."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos import judge
from tests.chaos.judge import Row
from tests.chaos.load import STEADY, Load
from tests.chaos.operations import clients
from tests.chaos.served import PARTS, Served
from tests.doubles.processes import running

SEED = 30
TOLD_S, HEALED_S = 15.0, 30.0
_PAUSE_S = (0.5, 3.0)
FROZEN = ("tritonserver", "engine", *PARTS)


async def freeze(count: int, directory: Path) -> Row:
    """SIGSTOP `count` times in one server: every client ends within 15 s, all is answered again after 30."""
    rng, row, frozen = random.Random(SEED), Row(f"freeze-{count}x"), list[tuple[float, str]]()
    changes = {"llm": {"stall_timeout_s": "10"}}
    served = await asyncio.to_thread(lambda: Served(directory, changes=changes))
    try:
        async with clients(served.url, served.gateway) as asked:
            load = Load(asked, STEADY)
            await load.learn()
            load.start()
            for _ in range(count):
                await asyncio.sleep(rng.uniform(*_PAUSE_S))
                part = rng.choice(FROZEN)
                frozen.append((time.monotonic(), part))
                if problem := await _frozen(served, load, part):
                    row.missed.append(f"{part}: {problem}")
                    break
            await load.stop()
        told = [one for one in load.outcomes if one.what != "right"]
        row.saw, row.lost = judge.seen(told), judge.lost(load.outcomes)
        times = sorted(Counter(part for _, part in frozen).items())
        row.saw += f"; stopped: {', '.join(f'{count} {part}' for part, count in times)}"
        row.told_s = max((one.ended - one.began for one in told), default=None)
        if row.told_s and row.told_s > TOLD_S:
            row.missed.append(f"a client waited {row.told_s:.1f} s for its end")
        for one in told:
            if one.what in ("wrong", "hung"):
                stopped = [f"{part} {one.began - at:+.1f} s" for at, part in frozen if at < one.ended][-2:]
                row.missed.append(f"{one.kind}: {one.what} {one.error}, begun after {' and '.join(stopped)}")
        if row.missed:
            print((served.disk / "log").read_text(errors="replace"), file=sys.stderr)
        row.stop_s = await asyncio.to_thread(served.stop)
    finally:
        await asyncio.to_thread(served.kill)
    return row


async def _frozen(served: Served, load: Load, part: str) -> str:
    """What did not heal; empty: all kinds were answered again."""
    at = time.monotonic()
    pid = await asyncio.to_thread(served.pid, part)
    os.kill(pid, signal.SIGSTOP)
    while time.monotonic() - at < HEALED_S:
        if not served.alive():
            return f"serve ended: {served.output[-300:]}"
        if not running(pid) and judge.recovered(
            [one for one in load.outcomes if one.ended >= at], STEADY, at
        ):
            return ""
        await asyncio.sleep(0.1)
    return f"not healed after {HEALED_S:g} s"
