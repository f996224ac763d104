"""Numbered events, and how many of them wait."""

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


async def read(box: Outbox) -> list[int]:
    events = [json.loads(line) async for line in box.lines()]
    assert [event["event_id"] for event in events] == [f"event_{event['number']}" for event in events]
    return [event["number"] for event in events]


async def test_a_reader_has_them_in_order_and_waits_for_news() -> None:
    box = filled(2)
    reading = asyncio.ensure_future(read(box))
    await asyncio.sleep(0)
    box.put("some.event", number=3)
    await asyncio.sleep(0)
    box.end(1000, "done")
    assert await reading == [1, 2, 3]


async def test_nothing_follows_the_end_and_the_first_reason_counts() -> None:
    box = filled(1)
    box.end(1011, "first")
    box.end(1000, "second")
    box.put("some.event", number=2)
    assert (await read(box), box.ending) == ([1], Close(1011, "first"))


async def test_who_does_not_read_is_left_and_nothing_before_that_gets_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MOST_UNREAD_BYTES", 1_000)
    assert not filled(5).ending
    box = filled(100)
    assert box.ending == Close(1008, "the client does not read")
    assert box._bytes < 1_100, "what came later is not held"
    seen = await read(box)
    assert seen == list(range(1, len(seen) + 1))
