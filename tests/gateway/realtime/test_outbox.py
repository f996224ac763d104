"""Numbered events, and what is kept of them."""

from __future__ import annotations

import asyncio
import json

import pytest

from trimodal.gateway.realtime import outbox
from trimodal.gateway.realtime.outbox import Close, Outbox


def filled(count: int) -> Outbox:
    box = Outbox()
    for number in range(1, count + 1):
        box.put("some.event", number=number)
    return box


async def read(box: Outbox, after: int) -> list[int]:
    return [json.loads(line)["number"] async for line in box.lines(after)]


async def test_events_come_in_order_after_any_number() -> None:
    box = filled(5)
    box.end(1000, "done")
    assert [await read(box, after) for after in (0, 3, 5)] == [[1, 2, 3, 4, 5], [4, 5], []]


async def test_a_reader_waits_for_news() -> None:
    box = filled(1)
    reading = asyncio.ensure_future(read(box, 0))
    await asyncio.sleep(0)
    box.put("some.event", number=2)
    await asyncio.sleep(0)
    box.end(1000, "done")
    assert await reading == [1, 2]


async def test_two_readers_for_a_while_both_see_everything() -> None:
    """A connection that is lost may not know it yet."""
    box = filled(3)
    readings = [asyncio.ensure_future(read(box, after)) for after in (0, 1)]
    for number in range(4, 50):
        box.put("some.event", number=number)
        await asyncio.sleep(0)
    box.end(1000, "done")
    assert await asyncio.gather(*readings) == [list(range(1, 50)), list(range(2, 50))]


def test_nothing_follows_the_end_and_the_first_reason_counts() -> None:
    box = filled(1)
    box.end(1011, "first")
    box.end(1000, "second")
    box.put("some.event")
    assert (box.last, box.ending) == (1, Close(1011, "first"))


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "KEEP_BYTES", 1_000)
    box = filled(100)
    assert box.overrun, "nobody has read the first ones"
    assert not box.holds(0)
    assert not box.holds(101)
    assert box.holds(99)
    box.end(1000, "done")
    assert await read(box, 0) == []
    kept = await read(box, 90)
    assert kept == list(range(91, 101))
