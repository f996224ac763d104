"""How much memory a server takes while it is measured: its engine's process, and all its others.

Proportional set size, so that what processes share is counted once. It reads /proc and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_ENGINE = b"-m\0trimodal.llm\0"
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
    for directory in Path("/proc").glob("[0-9]*"):
        # A process may end while it is looked at, or be somebody else's.
        with contextlib.suppress(OSError):
            if os.getpgid(int(directory.name)) != group:
                continue
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
