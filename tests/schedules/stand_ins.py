"""Stands in for what `threading`, `queue`, `time` and `Pipe` give, in a world: each call is a switch."""

from __future__ import annotations

import queue as real_queue
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.schedules.world import Task, World


class Thread:
    """Stands in for threading.Thread."""

    def __init__(
        self,
        world: World,
        group: None = None,
        target: Callable[..., None] = lambda: None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name or getattr(target, "__name__", "thread"), daemon
        self._world = world
        self._run = lambda: target(*args, **(kwargs or {}))
        self._task: Task | None = None
        self._number = next(world.numbers)

    def __hash__(self) -> int:
        return self._number  # executors keep threads in sets, whose order must be the same again

    def start(self) -> None:
        self._task = self._world.spawn(self.name, self._run)
        self._world.switch()

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._world.wait(lambda: not self.is_alive(), timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.over


class Lock:
    """Stands in for threading.Lock."""

    reentrant = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = self._world
        me = world.current
        if self._owner is not me or not self.reentrant:
            world.switch()
            if self._owner and not (blocking and world.wait(lambda: self._owner is None, timeout)):
                return False
            self._owner = world.held[self] = me
        self._depth += 1
        return True

    def release(self) -> None:
        if not self._owner:
            if self._world.stopping:
                return  # what a thread that is ended in the middle gives back
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            del self._world.held[self]
            self._world.switch()

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """Stands in for threading.RLock."""

    reentrant = True


class Condition:
    """Stands in for threading.Condition."""

    def __init__(self, world: World, lock: Lock | None = None) -> None:
        self._world, self._lock = world, lock or RLock(world)
        self._waiting: list[object] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        me = object()
        self._waiting.append(me)
        self._lock.release()
        told = self._world.wait(lambda: me not in self._waiting, timeout)
        if not told:
            self._waiting.remove(me)
        self._lock.acquire()
        return told

    def notify(self, count: int = 1) -> None:
        if not self._lock.locked():
            raise RuntimeError("cannot notify on un-acquired lock")
        del self._waiting[:count]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    """Stands in for threading.Event."""

    def __init__(self, world: World) -> None:
        self._world, self._set = world, False

    def is_set(self) -> bool:
        self._world.switch()
        return self._set

    def set(self) -> None:
        self._set = True
        self._world.switch()

    def clear(self) -> None:
        self._set = False
        self._world.switch()

    def wait(self, timeout: float | None = None) -> bool:
        return self._world.wait(lambda: self._set, timeout)


class Semaphore:
    """Stands in for threading.Semaphore."""

    def __init__(self, world: World, value: int = 1) -> None:
        self._world, self._value = world, value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self._world.switch()
        if not self._value and not (blocking and self._world.wait(lambda: self._value > 0, timeout)):
            return False
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1
        self._world.switch()


class Queue:
    """Stands in for queue.SimpleQueue and queue.Queue."""

    def __init__(self, world: World, maxsize: int = 0) -> None:
        self._world, self._most = world, maxsize or sys.maxsize
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._world.switch()
        if len(self._items) >= self._most and not (
            block and self._world.wait(lambda: len(self._items) < self._most, timeout)
        ):
            raise real_queue.Full
        self._items.append(item)
        self._world.switch()

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._world.switch()
        if not self._items and not (block and self._world.wait(lambda: bool(self._items), timeout)):
            raise real_queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items


class End:
    """Stands in for one end of a multiprocessing Pipe."""

    other: End

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: deque[Any] = deque()
        self._closed = False

    def fileno(self) -> int:
        return -1  # no engine here waits for it

    def send(self, item: Any) -> None:
        if self._closed or self.other._closed:
            raise BrokenPipeError
        self.other._items.append(item)
        self._world.switch()

    def poll(self, timeout: float | None = 0.0) -> bool:
        if self._closed:
            raise OSError("handle is closed")
        self._world.wait(lambda: bool(self._items) or self.other._closed, timeout)
        return bool(self._items) or self.other._closed

    def recv(self) -> Any:
        self.poll(None)
        if not self._items:
            raise EOFError
        return self._items.popleft()

    def close(self) -> None:
        self._closed = True
        self._world.switch()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pipe(world: World) -> tuple[End, End]:
    """Both ends of a connection."""
    one, other = End(world), End(world)
    one.other, other.other = other, one
    return one, other
