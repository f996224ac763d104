"""An asyncio event loop that runs on a thread of its own, and its orderly end. It knows no engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError  # not the built-in one before Python 3.11
from typing import Any, TypeVar

T = TypeVar("T")
_END_SECONDS = 2.0


class LoopThread:
    """An event loop that runs from here to close()."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="llm-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """The coroutine's result, from any other thread.

        Raises:
            TimeoutError: none after `seconds`; the coroutine is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(seconds)
        except FutureTimeoutError:
            future.cancel()
            raise TimeoutError from None

    def cancel_tasks(self) -> None:
        """Cancels all tasks and waits for their last steps, for a moment."""
        with contextlib.suppress(TimeoutError):
            self.run(_cancel_all(), _END_SECONDS)

    def close(self) -> None:
        """Stops the loop. A thread that hangs in a library's call is left to the end of the process."""
        self.cancel_tasks()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
