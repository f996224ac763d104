"""Plays scenarios by seed, one schedule each; what is wrong is told with the seed and the last switches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from tests.schedules.install import installed
from tests.schedules.world import Finding, World, last_of

PACKAGES = ("trimodal.", "tests.", "concurrent.futures.")
LINE_SHARE = 0.3
"""Of the schedules of a scenario, in which statements are points to switch at, too."""

_ENDING_S = 10.0
"""For what is told to end and not waited for: the thread that stands for the engine's process."""


class Drawn(Exception):
    """A fault that a scenario put in: nothing is wrong when it is met."""


class Scenario:
    """What one kind of schedule does. Made, run and checked in a world; it ends all that it started.

    Attributes:
        stall_s: see World. switching: modules whose statements are points to switch at in some schedules.
        comes_to: what happens in some schedules: were it never `seen`, the scenario would show nothing.
    """

    stall_s: ClassVar[float] = 0.05
    switching: ClassVar[tuple[str, ...]] = ()
    comes_to: ClassVar[tuple[str, ...]] = ()

    def __init__(self, world: World) -> None:
        self.world, self.draw = world, world.draw
        self.seen: Counter[str] = Counter()
        """What happened, counted."""

    def run(self) -> None:
        """Lets everything happen, to its end."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises AssertionError when anything is left or was done twice."""
        raise NotImplementedError


@dataclass
class Played:
    """A schedule that went well; `digest` is the same for the same order."""

    switches: int
    seconds: float
    digest: int
    seen: Counter[str] = field(default_factory=Counter)


def play(kind: type[Scenario], seed: int) -> Played:
    """Plays one schedule.

    Raises:
        Finding: something is wrong in it; with the seed and the last switches.
    """
    try:
        return _play(kind, seed, [])
    except Exception as error:
        trace: list[str] = []
        try:
            _play(kind, seed, trace, record=True)
            again = "and did not fail when it was played again"
        except Exception:
            again = f"its last switches:\n{last_of(trace)}"
        told = f"{kind.__name__} seed {seed}: {type(error).__name__}: {error}\n{again}"
        raise Finding(told) from error


def _play(kind: type[Scenario], seed: int, trace: list[str], *, record: bool = False) -> Played:
    world = World(seed, stall_s=kind.stall_s, record=record)
    world.trace = trace
    switching = kind.switching if world.draw.random() < LINE_SHARE else ()
    with _logged_faults() as faults, installed(world, PACKAGES, switching):
        began = world.now
        scenario = kind(world)
        scenario.run()
        scenario.check()
        world.settle(lambda: not world.others(), _ENDING_S)
        for task in world.others():
            raise Finding(f"the thread {task} has not ended\n{world.stacks()}")
        assert not world.held, "a lock is held at the end"
        assert not faults, f"logged on the way: {faults[0]}"
        return Played(world.switches, world.now - began, world.digest, scenario.seen)


@contextmanager
def _logged_faults() -> Iterator[list[str]]:
    """What is logged with an exception that was not drawn: threads catch what would end them."""
    faults = _Faults()
    loggers = [logging.getLogger(name) for name in ("trimodal", "tests")]
    before = [(one.propagate, one.level) for one in loggers]
    for one in loggers:
        one.propagate = False
        one.setLevel(logging.ERROR)
        one.addHandler(faults)
    try:
        yield faults.found
    finally:
        for one, (propagate, level) in zip(loggers, before, strict=True):
            one.propagate = propagate
            one.setLevel(level)
            one.removeHandler(faults)


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error and not isinstance(error, Drawn):
            self.found.append(self.format(record))
