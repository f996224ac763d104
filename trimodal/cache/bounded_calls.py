"""Limits the time that a lookup spends in calls that may hang: threads, a circuit breaker, time limits.

A call that hangs cannot be ended, and it keeps its thread. So a lookup's calls run on the lookup's own
thread, which is one of a few daemons, and the thread that waits for the lookup gives it up in time.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from trimodal.errors import STARVED, InternalError, Unavailable

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Bypassed(Exception):
    """There is no result in time. `reason` is one of timeout, error, open, busy."""

    def __init__(self, reason: str, cause: BaseException | None = None) -> None:
        # Of these two no sentence holds what a client sent.
        told = cause if isinstance(cause, Unavailable | InternalError) else type(cause).__name__
        super().__init__(reason if cause is None else f"{reason}: {told}")
        self.reason = reason
        self.cause = cause


class DaemonThreads:
    """At most `count` threads that run jobs, started when they are first needed.

    Not a ThreadPoolExecutor: Python joins its threads at exit, and one that hangs would keep the process.

    Args:
        jobs: upper bound on jobs that run or wait.
    """

    def __init__(self, count: int, name: str, jobs: int) -> None:
        self._count, self._name, self._most = count, name, jobs
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the three below
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    @property
    def unfinished(self) -> int:
        """Jobs that run or wait."""
        return self._unfinished

    def submit(self, job: Callable[..., None], *args: Any) -> bool:
        """Runs `job(*args)` soon; False: too many wait, no thread can be had, or they are closed."""
        with self._lock:
            if self._closed or self._unfinished >= self._most:
                return False
            if len(self._threads) < min(self._unfinished + 1, self._count):
                name = f"{self._name}-{len(self._threads) + 1}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                try:
                    thread.start()
                except STARVED:  # the system lets this process have no more; those there are may hang
                    return False
                self._threads.append(thread)
            self._unfinished += 1
            self._queue.put(partial(job, *args))
            return True

    def close(self, timeout: float) -> None:
        """Ends the threads after the jobs that wait; leaves those behind that hang for `timeout` seconds."""
        until = time.monotonic() + timeout
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        while job := self._queue.get():
            try:
                job()
            except Exception:
                logger.exception("a job failed")
            with self._lock:
                self._unfinished -= 1


class CircuitBreaker:
    """Stops calls for a while after failures in a row, then lets one call try.

    A row must have lasted a moment: calls that run side by side all fail in one pause of a busy machine.
    Logs once when it opens and once when it closes again.

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
        """Whether calls may be made freely."""
        return self._until is None

    def enter(self) -> bool:
        """Whether a call may be made now; the caller then reports `record_success` or `record_failure`."""
        with self._lock:
            if self._until is None:
                return True
            if self._trying or self._clock() < self._until:
                return False
            self._trying = True
            return True

    def record_success(self) -> None:
        """A call went well."""
        with self._lock:
            was, self._until = self._until, None
            self._failed, self._trying = 0, False
        if was is not None:
            logger.warning("%s is back", self._what)

    def record_failure(self, why: str) -> None:
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
            logger.warning("%s fails (%s): requests go past it until it is back", self._what, why)


class Guarded:
    """Something that may hang or fail, called by at most `callers` threads at once, behind a breaker."""

    def __init__(self, what: str, callers: int) -> None:
        self.breaker = CircuitBreaker(what)
        self.slots = threading.Semaphore(callers)


class TimedCalls:
    """The calls of one lookup, one after the other, each with a time limit.

    `call` runs on the lookup's thread. Another thread compares `until` with the time and gives up.

    Args:
        patience_s: how long the lookup may wait for its thread.
        clock: seconds, of `until`; another one is for tests.
    """

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards all below
        self._until = clock() + patience_s
        self._target: Guarded | None = None
        self._budget_s = 0.0
        self._given_up = False

    @property
    def until(self) -> float:
        """When what is under way has had its time; inf: nothing is."""
        return self._until

    def begin(self) -> None:
        """The lookup has its thread."""
        with self._lock:
            self._until = math.inf

    def call(
        self,
        target: Guarded,
        work: Callable[[], T],
        budget_s: float,
        pardoned: tuple[type[Exception], ...] = (),
    ) -> T:
        """Returns what `work` returns.

        Args:
            pardoned: errors that do not count against the target; raised as Bypassed like all others.

        Raises:
            Bypassed: there is no result; `open` when nothing was tried, `timeout` when it was given up.
        """
        with self._lock:
            # Given up before it named its target, it would leave the breaker waiting for the end of a try.
            if self._given_up:
                raise Bypassed("timeout")
            if not target.breaker.enter():
                raise Bypassed("open")
            self._until, self._target, self._budget_s = self._clock() + budget_s, target, budget_s
        missed: Bypassed | None = None
        if target.slots.acquire(timeout=budget_s):
            try:
                result = work()
            except Exception as error:
                missed = Bypassed("error", error)
            target.slots.release()
        else:
            missed = Bypassed("busy")
        with self._lock:
            self._until, self._target = math.inf, None
            if self._given_up:
                raise Bypassed("timeout")  # the breaker knows
        if missed is None or (missed.cause is not None and isinstance(missed.cause, pardoned)):
            target.breaker.record_success()
        elif missed.reason != "busy" or not target.breaker.closed:
            # Busy says that there are many calls, nothing against the target; but a breaker's try has ended.
            target.breaker.record_failure(str(missed))
        if missed:
            raise missed
        return result

    def give_up(self, now: float) -> bool:
        """Gives up what has had its time; True once: the lookup is over, whatever its thread still does."""
        with self._lock:
            if self._given_up or now < self._until:
                return False
            self._given_up = True
            target = self._target
        if target:
            target.breaker.record_failure(f"timeout after {self._budget_s * 1e3:.0f} ms")
        return True
