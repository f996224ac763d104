"""Calls that may hang, with a time limit: a few threads, and a circuit breaker in front of them.

A call that is past its budget is abandoned: its caller goes on, its thread ends when
the call does. Threads are daemons: what hangs does not keep the process. What is
called, and what is done without its result, is the caller's affair.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T")


class Bypassed(Exception):
    """There is no result in time. `reason` is one of timeout, error, open, busy."""

    def __init__(self, reason: str, cause: BaseException | None = None) -> None:
        super().__init__(reason if cause is None else f"{reason}: {type(cause).__name__}")
        self.reason = reason
        self.cause = cause


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.ended = threading.Event()
        self.result: T
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error
        self.ended.set()


class Workers:
    """At most `count` threads that run calls, started when they are first needed."""

    def __init__(self, count: int, name: str) -> None:
        self._slots = threading.Semaphore(count)
        self._most, self._name = count, name
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = self._idle = 0
        self._closed = False

    def call(self, work: Callable[[], T], budget_s: float) -> T:
        """What `work` returns.

        Raises:
            Bypassed: timeout; busy (every thread is held by another call for the whole budget); error.
        """
        deadline = time.monotonic() + budget_s
        if self._closed or not self._slots.acquire(timeout=budget_s):
            raise Bypassed("busy")
        call = _Call(work)
        self._hand_over(call)
        if not call.ended.wait(max(0.0, deadline - time.monotonic())):
            raise Bypassed("timeout")
        if call.error is not None:
            raise Bypassed("error", call.error)
        return call.result

    def close(self) -> None:
        """Ends the threads that are idle, and the others after their call."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._calls.put(None)

    def _hand_over(self, call: _Call[Any]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._started += 1
                name = f"{self._name}-{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            self._calls.put(call)

    def _work(self) -> None:
        while call := self._calls.get():
            call.run()
            with self._lock:
                self._idle += 1
            self._slots.release()


class Breaker:
    """Leaves something alone for a while after failures in a row, then tries it with one call.

    A row must have lasted a moment: calls that run side by side all fail in one pause of a busy machine.
    Says so on stderr once when it begins and once when it is over.

    Args:
        what: what fails, as the sentence names it.
        clock: seconds; another one is for tests.
    """

    FAILURES: ClassVar[int] = 3
    ROW_S: ClassVar[float] = 0.25
    PAUSE_S: ClassVar[float] = 1.0

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._lock = threading.Lock()
        self._failed = 0
        self._since = 0.0
        self._until: float | None = None
        self._trying = False

    @property
    def closed(self) -> bool:
        """Whether all is well as far as is known."""
        return self._until is None

    def enter(self) -> bool:
        """Whether a call may be made now; one that may tells its outcome by `good` or `bad`."""
        with self._lock:
            if self._until is None:
                return True
            if self._trying or self._clock() < self._until:
                return False
            self._trying = True
            return True

    def good(self) -> None:
        """A call went well."""
        with self._lock:
            was, self._until = self._until, None
            self._failed, self._trying = 0, False
        if was is not None:
            self._say("is back")

    def bad(self, why: str) -> None:
        """A call failed."""
        with self._lock:
            now = self._clock()
            if not self._failed:
                self._since = now
            self._failed += 1
            row = self._failed >= self.FAILURES and now - self._since >= self.ROW_S
            opens = self._until is None and row
            if opens or self._until is not None:
                self._until, self._trying = now + self.PAUSE_S, False
        if opens:
            self._say(f"fails ({why}): requests go past it until it is back")

    def _say(self, sentence: str) -> None:
        print(f"trimodal: {self._what} {sentence}", file=sys.stderr, flush=True)


class Guarded:
    """Calls of one thing that may hang or fail: workers behind a breaker."""

    def __init__(self, what: str, workers: Workers) -> None:
        self.breaker = Breaker(what)
        self._workers = workers

    def call(self, work: Callable[[], T], budget_s: float, pardoned: tuple[type[Exception], ...] = ()) -> T:
        """What `work` returns in time.

        Args:
            pardoned: errors that say nothing against what is called; raised as Bypassed like all others.

        Raises:
            Bypassed: there is no result; `open` when nothing was tried.
        """
        if not self.breaker.enter():
            raise Bypassed("open")
        try:
            result = self._workers.call(work, budget_s)
        except Bypassed as missed:
            if missed.cause is not None and isinstance(missed.cause, pardoned):
                self.breaker.good()
            elif missed.reason != "busy" or not self.breaker.closed:
                # Busy says that there are many calls, nothing against what is called: but a try has ended.
                self.breaker.bad(f"{missed}" if missed.cause else f"{missed} after {budget_s * 1e3:.0f} ms")
            raise
        self.breaker.good()
        return result
