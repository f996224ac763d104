"""Runs threads one at a time, on a clock of its own, in an order that a seed decides.

Every thread is a greenlet, so a switch costs under a microsecond and a schedule a few milliseconds. Wherever
a thread takes or gives back a lock, waits, or hands something over, the world's strategy chooses who goes on;
so a race that one order shows is found again with its seed. Time passes a little with every switch; when all
threads wait, it jumps to the next deadline.
"""

from __future__ import annotations

import itertools
import random
import sys
import traceback
from _thread import get_ident
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from greenlet import GreenletExit, getcurrent, greenlet

from tests.schedules.strategies import Strategy, strategy_of

SWITCH_S = 5e-5
"""Mean time that passes with a switch, seconds."""
MOST_SWITCHES = 300_000
_OURS = {str(Path(__file__).with_name(f"{name}.py")) for name in ("world", "stand_ins", "install", "play")}
_FRAMES, _TRACED = 5, 80


class Finding(AssertionError):
    """What a schedule must not come to: all threads wait for ever, or go on for ever."""


class Task:
    """One thread of the world: it goes on when `condition` holds or its time `until` has come."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name, self.over = name, False
        self.priority = 0.0
        self.condition: Callable[[], bool] | None = None
        self.until = float("inf")
        self.run = run
        self.greenlet: greenlet


class World:
    """The threads and the clock of one schedule; the code that makes it is the first thread.

    Args:
        stall_s: how far the clock may jump while threads could go on, seconds: as if the machine stood still.
        record: keeps who was followed by whom, and where, in `trace`.
    """

    def __init__(self, seed: int, *, stall_s: float = 0.05, record: bool = False) -> None:
        self.now = 1000.0
        self.switches = 0
        self.digest = 0
        self.stopping = False
        self.trace: list[str] = []
        self.held: dict[object, Task] = {}  # locks that are taken, and by whom
        self.draw = random.Random(seed)
        self.strategy: Strategy = strategy_of(self.draw)
        self._random = self.draw.random
        self._stall_s, self._record = stall_s, record
        self._line_share = self.draw.choice([0.05, 0.3, 1.0])
        self._spawned, self.numbers = itertools.count(1), itertools.count(1)
        self._failed: BaseException | None = None
        self._thread = get_ident()
        self._main = self.current = Task("main", lambda: None)
        self._main.greenlet = getcurrent()
        self._alive = [self._main]
        self.strategy.began(self._main)

    def spawn(self, name: str, run: Callable[[], None]) -> Task:
        """A thread that will call `run`. An error of it fails the schedule."""
        task = Task(f"{name} ({next(self._spawned)})", run)
        task.greenlet = greenlet(lambda *_: self._body(task), self._main.greenlet)
        self.strategy.began(task)
        self._alive.append(task)
        return task

    def switch(self) -> None:
        """Anybody who can may go on now."""
        if self.stopping:
            return
        self.now += 2 * SWITCH_S * self._random()
        self._go_on()

    def line(self) -> None:
        """A statement of a module whose statements are points to switch at, too."""
        if get_ident() != self._thread:
            return  # of a real thread that an earlier test left behind, such as the one that carries metrics
        if self._random() < self._line_share and not self.stopping:
            self._go_on()

    def wait(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Lets others go on until `condition` holds; False: it did not in time."""
        if self.stopping:
            raise GreenletExit
        me = self.current
        me.until = float("inf") if timeout is None or timeout < 0 else self.now + timeout
        me.condition = condition
        self._go_on()
        me.condition = None
        return condition()

    def sleep(self, seconds: float) -> None:
        """Lets others go on for so long."""
        self.wait(lambda: False, seconds)

    def settle(self, condition: Callable[[], bool], timeout: float) -> bool:
        """As `wait`, and the clock does not jump over what others could do from now on."""
        self._stall_s = 0.0
        return self.wait(condition, timeout)

    def others(self) -> list[str]:
        """Names of the threads that have not ended, but the first."""
        return [task.name for task in self._alive if task is not self._main]

    def stacks(self) -> str:
        """Where every thread stands."""
        return "\n".join(self._stack(task) for task in self._alive)

    def stop(self) -> None:
        """Ends all threads."""
        self.stopping = True
        for task in [one for one in self._alive if one is not self._main]:
            self.current = task
            while not task.greenlet.dead:
                task.greenlet.parent = getcurrent()
                task.greenlet.throw()
        self.current = self._main

    def _body(self, task: Task) -> None:
        try:
            task.run()
        except GreenletExit:
            pass
        except BaseException as error:
            self._failed = self._failed or error
        task.over = True
        self._alive.remove(task)
        if not self.stopping:
            # What a greenlet returns to when it ends is its parent.
            task.greenlet.parent = self._hand_over().greenlet

    def _go_on(self) -> None:
        me = self.current
        chosen = self._hand_over()
        if chosen is not me:
            chosen.greenlet.switch()
        if me is self._main and self._failed:
            error, self._failed = self._failed, None
            raise error

    def _hand_over(self) -> Task:
        before = self.current
        self.current = chosen = self._main if self._failed else self._next()
        if chosen is not before:
            self.switches += 1
            if self._record:
                self.trace.append(f"{self.now:.6f} {before.name} → {chosen.name}  {_place(chosen, before)}")
        return chosen

    def _next(self) -> Task:
        if self.switches > MOST_SWITCHES:
            return self._fail(f"no end after {self.switches} switches")
        if self._stall_s and self._random() < self.strategy.stalls:
            due = min(task.until if task.condition else float("inf") for task in self._alive)
            if self.now < due <= self.now + self._stall_s:
                self.now = due
        while True:
            now = self.now
            ready = [t for t in self._alive if t.condition is None or t.until <= now or t.condition()]
            if ready:
                chosen = ready[0] if len(ready) == 1 else self.strategy.choose(ready, self.current)
                self.digest = (self.digest * 31 + self._alive.index(chosen)) & 0xFFFFFFFF
                return chosen
            due = min(task.until for task in self._alive)
            if due == float("inf"):
                return self._fail("every thread waits, none with a deadline")
            self.now = due

    def _fail(self, what: str) -> Task:
        self._failed = Finding(f"{what}\n{self.stacks()}")
        self._failed.__suppress_context__ = True
        return self._main

    def _stack(self, task: Task) -> str:
        frame = sys._getframe() if task is self.current else task.greenlet.gr_frame
        held = sum(owner is task for owner in self.held.values())
        frames = [one for one in traceback.extract_stack(frame) if one.filename not in _OURS][-_FRAMES:]
        where = "".join(f"\n    {_short(f.filename)}:{f.lineno} {f.name}: {f.line}" for f in frames)
        return f"  {task.name} ({held} locks){where or ' has not begun'}"


def _short(file: str) -> str:
    return "/".join(Path(file).parts[-3:])


def _place(chosen: Task, before: Task) -> str:
    """Where the thread that goes on stands."""
    frame: FrameType | None = chosen.greenlet.gr_frame
    while frame and frame.f_code.co_filename in _OURS:
        frame = frame.f_back
    if frame is None:
        return "begins" if not chosen.greenlet else ""
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"


def last_of(trace: list[str]) -> str:
    """The end of a trace, as it is printed."""
    cut = [f"… {len(trace) - _TRACED} switches before"] if len(trace) > _TRACED else []
    return "\n".join([*cut, *trace[-_TRACED:]])
