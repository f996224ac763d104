"""Splits many items into batches that a model takes, sends them side by side, and joins the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from trimodal.errors import InvalidArgument, ModelNotFound, RequestError

BATCHES_AT_ONCE = 4

Item = TypeVar("Item")
Row = TypeVar("Row")
Ask = Callable[[Sequence[Item]], Awaitable[list[Row]]]


async def in_batches(items: Sequence[Item], size: int, ask: Ask[Item, Row]) -> list[Row]:
    """Returns one row an item, in order, `size` in a batch. The first error cancels what still runs."""
    size = max(1, size)
    return await in_parts([items[at : at + size] for at in range(0, len(items), size)], ask)


async def in_parts(
    parts: Sequence[Sequence[Item]], ask: Ask[Item, Row], at_once: int = BATCHES_AT_ONCE
) -> list[Row]:
    """As `in_batches`, of items that are parted already."""
    room = asyncio.Semaphore(at_once)

    async def one(part: Sequence[Item]) -> list[Row]:
        async with room:
            return await ask(part)

    tasks = [asyncio.ensure_future(one(part)) for part in parts]
    try:
        return [row for rows in await asyncio.gather(*tasks) for row in rows]
    finally:
        for task in tasks:
            task.cancel()


def each_alone(ask: Ask[Item, Row]) -> Ask[Item, Row | RequestError]:
    """As `ask`, but a batch that is refused is sent again one by one, and errors stand in for their rows.

    Raises: ModelNotFound, which is no item's fault.
    """

    async def ask_each(items: Sequence[Item]) -> list[Row | RequestError]:
        try:
            return [*await ask(items)]
        except ModelNotFound:  # no item's fault
            raise
        except InvalidArgument as error:
            if len(items) == 1:
                return [error]
        return [row for item in items for row in await ask_each([item])]

    return ask_each
