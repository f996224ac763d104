"""Runs threads one at a time, on a clock of its own, in an order that a seed decides.

Modules under test get stand-ins for `threading`, `queue`, `time` and `Pipe`. Wherever a thread takes or
gives back a lock, waits, or hands something over, a seeded draw decides who goes on. So a race that one
order shows is found again with its seed. Time passes a little with every such switch; when all threads
wait, it jumps to the next deadline.
"""

from __future__ import annotations

import queue as real_queue
import random
import sys
import threading as real_threading
import time as real_time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isclass, isfunction
from multiprocessing import connection as real_connection
from typing import Any

_SWITCH_S = 5e-5
"""Mean time that passes with a switch, seconds."""


class Deadlock(AssertionError):
    """Every thread waits, none with a deadline."""


class _Stopped(BaseException):
    """Ends a thread of a run that is over."""


class Interleaving:
    """The threads and the clock of one run; the thread that makes it is the first."""

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.switches = 0
        self._draw = random.Random(seed)
        self.stopping = False
        self._failed: BaseException | None = None
        self._main = self._current = Thread(self)
        self._alive: list[Thread] = [self._main]

    @contextmanager
    def installed(self, *packages: str) -> Iterator[Interleaving]:
        """Gives the modules in `packages` the stand-ins; ends all threads afterwards."""
        changed: list[tuple[Any, str, Any]] = []

        def put(owner: Any, name: str, value: Any) -> None:
            changed.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        try:
            for name, module in list(sys.modules.items()):
                if name != __name__ and name.startswith(packages):
                    self._install(module, put)
            yield self
        finally:
            self._stop()
            for owner, name, value in reversed(changed):
                setattr(owner, name, value)

    def switch(self) -> None:
        """Anybody who can may go on now."""
        if self.stopping:
            return
        self.now += self._draw.expovariate(1 / _SWITCH_S)
        self._go_on()

    def wait(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Lets others go on until `condition` holds; False: it did not in time."""
        if self.stopping:
            raise _Stopped
        until = float("inf") if timeout is None or timeout < 0 else self.now + timeout
        me = self._current
        me.condition, me.until = condition, until
        self._go_on()
        me.condition = None
        return condition()

    def started(self, thread: Thread) -> None:
        self._alive.append(thread)

    def ended(self, thread: Thread) -> None:
        """The current thread is over: somebody else goes on."""
        self._alive.remove(thread)
        if not self.stopping:
            self._hand_over(self._next())

    def failed(self, error: BaseException) -> None:
        """A thread died of an error: the run has failed."""
        self._failed = self._failed or error

    def _go_on(self) -> None:
        me, chosen = self._current, self._next()
        if chosen is not me:
            self._hand_over(chosen)
            me.gate.acquire()
            if self.stopping and me is not self._main:
                raise _Stopped
        if me is self._main and self._failed:
            error, self._failed = self._failed, None
            raise error

    def _hand_over(self, chosen: Thread) -> None:
        self.switches += 1
        self._current = chosen
        chosen.gate.release()

    def _next(self) -> Thread:
        if self._failed:
            return self._main
        while True:
            now = self.now
            ready = [t for t in self._alive if t.condition is None or t.until <= now or t.condition()]
            if ready:
                return ready[int(self._draw.random() * len(ready))]
            self.now = min(thread.until for thread in self._alive)
            if self.now == float("inf"):
                self._failed = Deadlock(", ".join(thread.name for thread in self._alive))
                return self._main

    def _stop(self) -> None:
        self.stopping = True
        for thread in [one for one in self._alive if one is not self._main]:
            self._current = thread
            thread.gate.release()
            thread.real.join(10)
            assert not thread.real.is_alive()

    def _install(self, module: Any, put: Callable[[Any, str, Any], None]) -> None:
        stand_ins = {
            id(real_threading): _Module(real_threading, self._threading()),
            id(real_queue): _Module(
                real_queue, {"SimpleQueue": self._bound(Queue), "Queue": self._bound(Queue)}
            ),
            id(real_time): _Module(real_time, self._time()),
            id(real_connection.Pipe): self._pipe,
        }
        for name, value in list(vars(module).items()):
            if id(value) in stand_ins:
                put(module, name, stand_ins[id(value)])
            elif isclass(value) and value.__module__ == module.__name__:
                # A clock that is a default argument was bound when its module was imported.
                for method in [one for one in vars(value).values() if isfunction(one)]:
                    given = method.__defaults__ or ()
                    if any(one in (real_time.perf_counter, real_time.monotonic) for one in given):
                        clocks = (real_time.perf_counter, real_time.monotonic)
                        put(method, "__defaults__", tuple(self._clock if d in clocks else d for d in given))

    def _clock(self) -> float:
        return self.now

    def _time(self) -> dict[str, Any]:
        names = dict.fromkeys(("monotonic", "perf_counter", "time"), self._clock)
        return {**names, "sleep": lambda seconds: self.wait(lambda: False, seconds)}

    def _threading(self) -> dict[str, Any]:
        kinds: dict[str, type] = {"Lock": Lock, "RLock": RLock, "Event": Event, "Semaphore": Semaphore}
        bound: dict[str, Any] = {name: self._bound(kind) for name, kind in kinds.items()}
        return {**bound, "Thread": self._bound(Thread), "current_thread": lambda: self._current}

    def _bound(self, kind: type) -> Callable[..., Any]:
        return lambda *args, **options: kind(self, *args, **options)

    def _pipe(self) -> tuple[End, End]:
        one, other = End(self), End(self)
        one.other, other.other = other, one
        return one, other


class _Module:
    """A module some of whose names are replaced."""

    def __init__(self, real: Any, names: dict[str, Any]) -> None:
        self._real = real
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Thread:
    """Stands in for threading.Thread; `gate` opens when it is its turn."""

    def __init__(
        self,
        run: Interleaving,
        target: Callable[..., None] = lambda: None,
        name: str = "main",
        args: tuple[Any, ...] = (),
        daemon: bool = True,
    ) -> None:
        self.name = name
        self.gate = real_threading.Semaphore(0)
        self.condition: Callable[[], bool] | None = None
        self.until = float("inf")
        self.over = False
        self._run, self._target, self._args = run, target, args
        self.real = real_threading.Thread(target=self._body, daemon=True)

    def start(self) -> None:
        self._run.started(self)
        self.real.start()
        self._run.switch()

    def join(self, timeout: float | None = None) -> None:
        self._run.wait(lambda: self.over, timeout)

    def is_alive(self) -> bool:
        return not self.over

    def _body(self) -> None:
        self.gate.acquire()
        try:
            if not self._run.stopping:
                self._target(*self._args)
        except _Stopped:
            pass
        except BaseException as error:
            self._run.failed(error)
        self.over = True
        self._run.ended(self)


class Lock:
    """Stands in for threading.Lock."""

    reentrant = False

    def __init__(self, run: Interleaving) -> None:
        self._run = run
        self._owner: Thread | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        run = self._run
        me = run._current
        if self._owner is not me or not self.reentrant:
            run.switch()
            if self._owner and not (blocking and run.wait(lambda: self._owner is None, timeout)):
                return False
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._run.switch()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """Stands in for threading.RLock."""

    reentrant = True


class Event:
    """Stands in for threading.Event."""

    def __init__(self, run: Interleaving) -> None:
        self._run, self._set = run, False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._run.switch()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._run.wait(lambda: self._set, timeout)


class Semaphore:
    """Stands in for threading.Semaphore."""

    def __init__(self, run: Interleaving, value: int = 1) -> None:
        self._run, self._value = run, value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self._run.switch()
        if not self._value and not (blocking and self._run.wait(lambda: self._value > 0, timeout)):
            return False
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1
        self._run.switch()


class Queue:
    """Stands in for queue.SimpleQueue and queue.Queue."""

    def __init__(self, run: Interleaving, maxsize: int = 0) -> None:
        self._run, self._most = run, maxsize or sys.maxsize
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if len(self._items) >= self._most and not (
            block and self._run.wait(lambda: len(self._items) < self._most, timeout)
        ):
            raise real_queue.Full
        self._items.append(item)
        self._run.switch()

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._items and not (block and self._run.wait(lambda: bool(self._items), timeout)):
            raise real_queue.Empty
        return self._items.popleft()


class End:
    """Stands in for one end of a multiprocessing Pipe."""

    other: End

    def __init__(self, run: Interleaving) -> None:
        self._run = run
        self._items: deque[Any] = deque()
        self._closed = False

    def send(self, item: Any) -> None:
        if self._closed or self.other._closed:
            raise BrokenPipeError
        self.other._items.append(item)
        self._run.switch()

    def poll(self, timeout: float = 0.0) -> bool:
        if self._closed:
            raise OSError("handle is closed")
        self._run.wait(lambda: bool(self._items) or self.other._closed, timeout)
        return bool(self._items) or self.other._closed

    def recv(self) -> Any:
        self.poll(None)  # type: ignore[arg-type]
        if not self._items:
            raise EOFError
        return self._items.popleft()

    def close(self) -> None:
        self._closed = True
        self._run.switch()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
