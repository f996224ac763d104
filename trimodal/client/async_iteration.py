"""Turns a blocking iterator into an asynchronous one; tells a cancelled task from a cancelled wait."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

Item = TypeVar("Item")


async def pumped(items: Generator[Item, None, None]) -> AsyncGenerator[Item, None]:
    """Iterates in a thread of its own, two items ahead: decoding or a slow pipe holds up no other task.

    The thread is a daemon: a pipe that gives nothing does not keep the program alive, as a
    thread of asyncio's pool would. The thread closes `items` when the iteration is over or left.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[Item] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(2)
    left = threading.Event()

    def put(entry: tuple[Item] | BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the reader is gone
            loop.call_soon_threadsafe(queue.put_nowait, entry)

    def read() -> None:
        try:
            with contextlib.closing(items):
                while room.acquire() and not left.is_set():
                    put((next(items),))
        except StopIteration:
            put(None)
        except BaseException as error:
            put(error)

    threading.Thread(target=read, name="pump", daemon=True).start()
    try:
        while (entry := await queue.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            room.release()
            yield entry[0]
    finally:
        left.set()
        room.release()


def is_cancelling() -> bool:
    """Whether the running task is being cancelled (Python 3.11 and later can tell)."""
    task = asyncio.current_task()
    return sys.version_info >= (3, 11) and task is not None and task.cancelling() > 0
