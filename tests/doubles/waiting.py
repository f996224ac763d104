"""Waits for what other threads, tasks and processes do; a bound ends a test that would wait for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

BOUND_S = 60.0


def wait_until(holds: Callable[[], object], what: str = "it", bound: float = BOUND_S) -> None:
    """Looks again and again until `holds()`; fails the test after `bound` seconds."""
    deadline = time.monotonic() + bound
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {bound:g} s for {what}")
        time.sleep(0.005)


async def until(holds: Callable[[], object], what: str = "it", bound: float = BOUND_S) -> None:
    """The same between other tasks of the loop."""
    deadline = time.monotonic() + bound
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {bound:g} s for {what}")
        await asyncio.sleep(0.005)
