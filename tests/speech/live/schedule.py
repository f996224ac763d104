"""Runs threads one at a time in an order that a seed decides, switching at locks, queues, waits and sinks.

The doubles `Lock`, `Event`, `Thread` and `SimpleQueue` stand in for those of the modules under test. A thread
that waits with a timeout may be chosen at any moment: the clock then jumps to the end of that wait.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class _Task:
    def __init__(self, name: str, run: Callable[[], Any]) -> None:
        self.name, self.done, self.error = name, False, None
        self.ready: Callable[[], bool] = lambda: True
        self.deadline: float | None = None
        self.turn = threading.Semaphore(0)
        self.run = run


class Schedule:
    """One deterministic run. `now` is its clock, in seconds."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self._tasks: list[_Task] = []
        self._current: _Task | None = None
        self._back = threading.Semaphore(0)

    def spawn(self, name: str, run: Callable[[], Any]) -> _Task:
        """A thread that will call `run`."""
        task = _Task(name, run)
        self._tasks.append(task)

        def body() -> None:
            task.turn.acquire()
            try:
                run()
            except BaseException as error:
                task.error = error
            task.done = True
            self._back.release()

        threading.Thread(target=body, name=f"scheduled {name}", daemon=True).start()
        return task

    def pause(self, ready: Callable[[], bool] = lambda: True, timeout: float | None = None) -> None:
        """Lets others run; the calling thread goes on once `ready`, or when the timeout has passed."""
        task = self._current
        if task is None:  # the test itself, before or after the run
            assert ready()
            return
        task.ready = ready
        task.deadline = None if timeout is None else self.now + timeout
        self._back.release()
        task.turn.acquire()

    def run(self) -> None:
        """Runs all threads to their ends.

        Raises:
            AssertionError: they wait for each other, or one raised.
        """
        while alive := [task for task in self._tasks if not task.done]:
            able = [task for task in alive if task.ready() or task.deadline is not None]
            assert able, f"all wait: {[task.name for task in alive]}"
            task = self._current = self.random.choice(able)
            if not task.ready() and task.deadline is not None:
                self.now = max(self.now, task.deadline)
            task.turn.release()
            self._back.acquire()
            self._current = None
            assert task.error is None, (task.name, task.error)

    @property
    def doubles(self) -> SimpleNamespace:
        """`Lock`, `Event`, `Thread` and `SimpleQueue` of this schedule."""
        schedule = self

        class Lock:
            def __init__(self) -> None:
                self.held = False

            def __enter__(self) -> None:
                schedule.pause(lambda: not self.held)
                self.held = True

            def __exit__(self, *_: object) -> None:
                self.held = False

        class Event:
            def __init__(self) -> None:
                self.flag = False

            def set(self) -> None:
                self.flag = True

            def is_set(self) -> bool:
                return self.flag

            def wait(self, timeout: float | None = None) -> bool:
                schedule.pause(self.is_set, timeout)
                return self.flag

        class Thread:
            def __init__(self, *, target: Callable[[], Any], name: str, daemon: bool) -> None:
                self._target, self._name = target, name

            def start(self) -> None:
                self._task = schedule.spawn(self._name, self._target)

            def join(self, timeout: float | None = None) -> None:
                schedule.pause(lambda: self._task.done)

        class SimpleQueue:
            def __init__(self) -> None:
                self._items: deque[Any] = deque()

            def put(self, item: Any) -> None:
                self._items.append(item)

            def get(self) -> Any:
                schedule.pause(lambda: bool(self._items))
                return self._items.popleft()

        return SimpleNamespace(Lock=Lock, Event=Event, Thread=Thread, SimpleQueue=SimpleQueue)
