"""Makes a fault in a server under load and judges what became of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.chaos import judge
from tests.chaos.faults.base import Fault
from tests.chaos.judge import Row
from tests.chaos.load import Load
from tests.chaos.operations import HUNG_S, KINDS, clients
from tests.chaos.served import Gone, Served

BEFORE_S, PATIENCE_S = 2.0, 30.0


async def under_load(fault: Fault, directory: Path) -> Row:
    """One fault, in a server of its own. Raises: CannotBeMade, Gone (the server did not start)."""
    served = await asyncio.to_thread(lambda: fault.needs(directory).serve(directory))
    try:
        row = await in_served(fault, served)
        if served.alive():
            busy = await asyncio.to_thread(served.idle)
            if busy:
                row.missed.append(f"still under way: {busy}")
            row.stop_s = await asyncio.to_thread(served.stop)
            if row.stop_s > judge.STOP_S:
                row.missed.append(f"SIGTERM took {row.stop_s:.1f} s")
        else:
            await _started_again(fault, served, row)
        return row
    finally:
        fault.close()
        await asyncio.to_thread(served.kill)


async def in_served(fault: Fault, served: Served, *, before_s: float = BEFORE_S) -> Row:
    """One fault in a server that runs on, if it can."""
    async with clients(served.url, served.gateway) as asked:
        load = Load(asked, fault.each)
        await load.learn()
        load.start()
        await asyncio.sleep(before_s)
        restarts = served.restarts
        at = time.monotonic()
        await asyncio.to_thread(fault.inject, served)
        await asyncio.sleep(fault.holds_s)
        await asyncio.to_thread(fault.heal, served)
        healed = time.monotonic()
        while served.alive() and time.monotonic() - healed < PATIENCE_S:
            since = [one for one in load.outcomes if one.ended >= at]
            if time.monotonic() - healed > before_s and judge.recovered(since, fault.each, healed):
                break
            await asyncio.sleep(0.05)
        await load.stop()
    since = [one for one in load.outcomes if one.ended >= at]
    row = Row(fault.name, judge.seen(since), judge.told_s(since, at), lost=judge.lost(since))
    before = [gap for when, gap in asked.gaps if when < at]
    during = [gap for when, gap in asked.gaps if at <= when < max(healed, at + before_s)]
    if before and during:
        row.itl = judge.percentile(before, 0.99), judge.percentile(during, 0.99)
    if served.alive() and served.restarts > restarts:
        row.saw += "; tritonserver was started again"
        row.limit = fault.limit
        if not fault.limit:
            row.missed.append("tritonserver ended")
    if served.alive():
        again = judge.recovered(since, fault.each, healed)
        row.recovery_s = None if again is None else again - healed
        row.missed += judge.missed(row, since, set(KINDS) if row.limit else fault.harms)
    else:
        row.recovery_s = 0.0  # until it is known how long a start takes
        row.missed = judge.missed(row, since, set(KINDS))
    return row


async def _started_again(fault: Fault, served: Served, row: Row) -> None:
    """What a server that ended leaves, and how long it takes to start another one."""
    said = served.output.strip().splitlines()[-2:]
    row.limit = fault.limit
    if not fault.limit:
        row.missed.append(f"the server ended: {' '.join(said)}")
    row.saw += "; the server ended"
    began = time.monotonic()
    again = await asyncio.to_thread(lambda: Served(served.directory))
    row.recovery_s = time.monotonic() - began
    try:
        async with clients(again.url, again.gateway) as asked:
            for kind in fault.each:
                await asyncio.wait_for(KINDS[kind](asked), HUNG_S)
        row.stop_s = await asyncio.to_thread(again.stop)
    except Gone:
        row.missed.append("no server could be started after it")
    finally:
        await asyncio.to_thread(again.kill)
