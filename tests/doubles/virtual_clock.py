"""Runs coroutines on a clock that jumps to the next timer: sleeps take no time and end exactly when due."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` begins at 1000 s and only moves while everything sleeps."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__()
        self._clock_resolution = 1e-11  # what is due later than that waits

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_virtually(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs the coroutine to its end."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
