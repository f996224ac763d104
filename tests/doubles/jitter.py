"""Makes threads late at random: `pytest -p tests.doubles.jitter` finds tests that pass by luck.

`JITTER` (an integer, 1 unless set) is the seed; with a test's id it says which delays that test gets. Threads
begin late, events are set late or their waiters wake late, event loops are told late; each delay is 0.15 s at
most.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

delays = random.Random()
working = False  # only while a test runs: not in its fixtures, nor between tests
sleep = time.sleep  # tests put others in its place


def delay(share: float, most_s: float) -> None:
    """Sleeps up to `most_s` in this share of the calls, up to five times as long in a fifth of those."""
    if not working:
        return
    drawn = delays.random()
    if drawn < share:
        sleep(delays.uniform(0, most_s * (5 if drawn < share / 5 else 1)))


def late(method: Callable[..., Any], *, before: float = 0.0, after: float = 0.0) -> Callable[..., Any]:
    """Returns the method with delays before it or after it, in these shares of its calls."""

    def called(*args: Any, **options: Any) -> Any:
        delay(before, 0.02)
        result = method(*args, **options)
        delay(after, 0.02)
        return result

    return called


def start(self: threading.Thread, start: Callable[[threading.Thread], None] = threading.Thread.start) -> None:
    """Starts a thread whose work begins late."""
    run = self.run

    def run_late() -> None:
        delay(0.5, 0.03)
        run()

    if working:
        self.run = run_late  # type: ignore[method-assign]
    start(self)


def pytest_configure() -> None:
    """Puts the late methods in place."""
    threading.Thread.start = start  # type: ignore[method-assign]
    for kind, name, before, after in (
        (threading.Event, "set", 0.15, 0.15),
        (threading.Event, "wait", 0.0, 0.2),
        (threading.Condition, "notify", 0.1, 0.0),
        (threading.Condition, "notify_all", 0.1, 0.0),
        (asyncio.BaseEventLoop, "call_soon_threadsafe", 0.1, 0.0),
    ):
        setattr(kind, name, late(getattr(kind, name), before=before, after=after))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Runs the test with its own delays, and with a thread's turn of 10 µs, 5 ms or 50 ms."""
    global working
    delays.seed(zlib.crc32(item.nodeid.encode()) + int(os.environ.get("JITTER", "1")))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(delays.choice([1e-5, 5e-3, 5e-2]))
    working = True
    try:
        return (yield)
    finally:
        working = False
        sys.setswitchinterval(interval)
