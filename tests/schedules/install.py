"""Gives modules under test the stand-ins of a world, and takes them away again."""

from __future__ import annotations

import queue as real_queue
import sys
import threading as real_threading
import time as real_time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from inspect import isclass, isfunction
from multiprocessing import connection as real_connection
from typing import Any

from tests.schedules import lines, stand_ins
from tests.schedules.world import World

_CLOCKS = (real_time.monotonic, real_time.perf_counter, real_time.time)
_LOCKS = (type(real_threading.Lock()), type(real_threading.RLock()))
_ORIGINALS = (real_threading, real_queue, real_time, real_queue.SimpleQueue, real_connection.Pipe, *_CLOCKS)


@contextmanager
def installed(world: World, packages: tuple[str, ...], switching: tuple[str, ...] = ()) -> Iterator[World]:
    """Runs the block on the world's threads and clock; ends its threads afterwards.

    Args:
        packages: beginnings of the names of modules that get the stand-ins.
        switching: modules each of whose statements is a point to switch at.
    """
    given = _given(world)
    made = {id(kind) for kind in _LOCKS}
    changed: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        for owner, name, key in _places(packages, len(sys.modules)):
            put(owner, name, given[key]() if key in made else given[key])
        for function, name in _clock_defaults(packages, len(sys.modules)):
            put(function, name, _with_clock(getattr(function, name), world))
        for module in switching:
            vars(sys.modules[module])[lines.CALL] = world.line
            for function, code in lines.switching_code(module):
                put(function, "__code__", code)
        yield world
    finally:
        try:
            world.stop()
        finally:
            for owner, name, value in reversed(changed):
                setattr(owner, name, value)


def _given(world: World) -> dict[int, Any]:
    """By the id of what it stands in for."""
    kinds = {
        name: partial(getattr(stand_ins, name), world)
        for name in ("Thread", "Lock", "RLock", "Condition", "Event", "Semaphore")
    }
    threads = {**kinds, "current_thread": lambda: world.current}
    queues = dict.fromkeys(("SimpleQueue", "Queue"), partial(stand_ins.Queue, world))

    def clock() -> float:
        return world.now

    times = {**dict.fromkeys(("monotonic", "perf_counter", "time"), clock), "sleep": world.sleep}
    return {
        **dict(zip(map(id, _LOCKS), (kinds["Lock"], kinds["RLock"]), strict=True)),
        id(real_threading): _Module(real_threading, threads),
        id(real_queue): _Module(real_queue, queues),
        id(real_time): _Module(real_time, times),
        id(real_queue.SimpleQueue): queues["SimpleQueue"],
        id(real_connection.Pipe): partial(stand_ins.pipe, world),
        **{id(one): clock for one in _CLOCKS},
    }


class _Module:
    """A module some of whose names are replaced."""

    def __init__(self, real: Any, names: dict[str, Any]) -> None:
        self._real = real
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _modules(packages: tuple[str, ...]) -> list[Any]:
    found = [(name, module) for name, module in sys.modules.items() if name.startswith(packages)]
    own = (f"{__package__}.{name}" for name in ("world", "stand_ins", "install", "strategies", "lines"))
    left_out = {*own, f"{__package__}.play", f"{__package__}.__main__"}
    return [module for name, module in found if name not in left_out]


@cache
def _places(packages: tuple[str, ...], loaded: int) -> list[tuple[Any, str, int]]:
    """Where modules name what is replaced. `loaded`: how many modules there are: others were added since."""
    originals = {id(one) for one in _ORIGINALS}
    found = []
    for module in _modules(packages):
        for name, value in vars(module).items():
            if id(value) in originals:
                found.append((module, name, id(value)))
            elif isinstance(value, _LOCKS):  # a module's own lock, as that of concurrent.futures.thread
                found.append((module, name, id(type(value))))
    return found


@cache
def _clock_defaults(packages: tuple[str, ...], loaded: int) -> list[tuple[Any, str]]:
    """Functions with a clock as a default argument: it was bound when their module was imported."""
    found = []
    for module in _modules(packages):
        classes = [one for one in vars(module).values() if isclass(one) and one.__module__ == module.__name__]
        for function in [one for owner in (module, *classes) for one in vars(owner).values()]:
            if isfunction(function) and function.__module__ == module.__name__:
                if any(_is_clock(one) for one in function.__defaults__ or ()):
                    found.append((function, "__defaults__"))
                if any(_is_clock(one) for one in (function.__kwdefaults__ or {}).values()):
                    found.append((function, "__kwdefaults__"))
    return found


def _is_clock(value: Any) -> bool:
    return any(value is clock for clock in _CLOCKS)  # by identity: an array compares element by element


def _with_clock(defaults: Any, world: World) -> Any:
    def clock() -> float:
        return world.now

    if isinstance(defaults, dict):
        return {name: clock if _is_clock(value) else value for name, value in defaults.items()}
    return tuple(clock if _is_clock(value) else value for value in defaults)
