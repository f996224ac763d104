"""Iterates a blocking iterator asynchronously; waits without losing a cancellation, and tells whose it is."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Generator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


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


async def wait_within(awaited: Awaitable[Result], seconds: float | None) -> Result:
    """Waits as asyncio.wait_for does, which it replaces. Raises: asyncio.TimeoutError.

    On Python 3.10 and 3.11 wait_for returns its result, and the cancellation is lost, where its task is
    cancelled once that is there: who waits for the task's end waits for as long as it goes on.
    """
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait((task,), timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def is_cancelling() -> bool:
    """Whether the running task is being cancelled (Python 3.11 and later can tell)."""
    task = asyncio.current_task()
    return sys.version_info >= (3, 11) and task is not None and task.cancelling() > 0
