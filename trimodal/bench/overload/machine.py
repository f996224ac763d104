"""Measures the memory of a server's processes and the CPU time that others take, from /proc.

Memory is the proportional set size, so that what processes share is counted once.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_IDLE = (3, 4)  # idle and iowait of the first line of /proc/stat
_COUNTED = 8  # user to steal; guests are in user already
_USER_SYSTEM = slice(11, 13)  # of /proc/PID/stat, after the name


@dataclass(frozen=True)
class Ticks:
    """CPU time in clock ticks since some time: of all CPUs, not idle, and ours."""

    all: int = 0
    busy: int = 0
    ours: int = 0


def _processes(group: int) -> Iterator[Path]:
    """Directories of the processes of a group; each may end at any time, or belong to another user."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(directory.name)) == group:
                yield directory


def read_ticks(group: int) -> Ticks:
    """Reads the counters; ours are this process and a process group."""
    fields = [
        int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : 1 + _COUNTED]
    ]
    ours = 0
    for directory in {Path(f"/proc/{os.getpid()}"), *_processes(group)}:
        with contextlib.suppress(OSError):
            text = (directory / "stat").read_text()
            ours += sum(map(int, text.rpartition(")")[2].split()[_USER_SYSTEM]))
    return Ticks(sum(fields), sum(fields) - sum(fields[index] for index in _IDLE), ours)


def share_of_others(before: Ticks, after: Ticks) -> float:
    """Of the CPU time between two readings, 0 to 1."""
    total = after.all - before.all
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return min(1.0, max(0.0, others / total)) if total > 0 else 0.0


_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_ENGINE = b"-m\0trimodal.llm.engine_core\0"
_EVERY_S = 1.0


@dataclass(frozen=True)
class Memory:
    """MiB."""

    server: float = 0.0
    engine: float = 0.0

    @property
    def total(self) -> float:
        return self.server + self.engine


def read_memory(group: int) -> Memory:
    """What the processes of a group take now."""
    server = engine = 0.0
    for directory in _processes(group):
        with contextlib.suppress(OSError):
            found = _PSS.search((directory / "smaps_rollup").read_bytes())
            size = int(found[1]) / 1024 if found else 0.0
            if _ENGINE in (directory / "cmdline").read_bytes():
                engine += size
            else:
                server += size
    return Memory(server, engine)


@dataclass
class MemoryWatch:
    """Looks every second, in a thread, from `with` to its end: before, the most, and after."""

    group: int
    before: Memory = field(default_factory=Memory)
    most: Memory = field(default_factory=Memory)
    after: Memory = field(default_factory=Memory)

    def __enter__(self) -> MemoryWatch:
        self.before = self.most = read_memory(self.group)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.after = read_memory(self.group)
        self._take(self.after)

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._take(read_memory(self.group))

    def _take(self, now: Memory) -> None:
        if now.total > self.most.total:
            self.most = now
