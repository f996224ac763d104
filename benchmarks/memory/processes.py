"""Reads the memory of a server's processes, and keeps the most of each.

It is the proportional set size (PSS) of /proc/PID/smaps_rollup: a page that several processes share, of a
library or of /dev/shm, counts once over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trimodal.server.supervision.stubs import children, model_of

Reading = dict[str, float]  # process → MiB


@dataclass
class Memory:
    """What a server holds, by process: when ready, after one request of each kind, and at most under load."""

    ready: Reading
    idle: Reading = field(default_factory=dict)
    peak: Reading = field(default_factory=dict)
    whole_peak: float = 0.0  # of all at one moment

    def see(self, reading: Reading) -> None:
        """Takes in a reading under load."""
        for name, size in reading.items():
            self.peak[name] = max(size, self.peak.get(name, 0.0))
        self.whole_peak = max(self.whole_peak, sum(reading.values()))

    @property
    def whole(self) -> list[float]:
        return [sum(self.ready.values()), sum(self.idle.values()), self.whole_peak]

    def rows(self) -> Iterator[tuple[str, list[float]]]:
        """Each process, the largest first."""
        for name in sorted(self.peak, key=lambda name: -self.peak[name]):
            yield name, [one.get(name, 0.0) for one in (self.ready, self.idle, self.peak)]


def parse_pss(rollup: str) -> float:
    """MiB of a smaps_rollup; 0 of a process that is ending, which has none."""
    found = re.search(r"^Pss:\s+(\d+) kB$", rollup, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def tree(pid: int, name: str) -> Iterator[tuple[int, str]]:
    """A process and those below it, each named after its model, its model's engine or its program."""
    yield pid, name
    for child in children(pid):
        yield from tree(child, model_of(child) or (f"{name}'s engine" if model_of(pid) else _program(child)))


def _program(pid: int) -> str:
    command = ""
    with suppress(OSError):  # it has ended meanwhile
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return "guard" if "process_guard" in command else Path(command.split("\0")[0]).name


def read(pid: int, name: str) -> Reading:
    """The memory of a process and those below it; processes of one name together."""
    reading: Reading = {}
    for one, of in tree(pid, name):
        with suppress(OSError):  # it has ended meanwhile
            size = parse_pss(Path(f"/proc/{one}/smaps_rollup").read_text())
            reading[of] = reading.get(of, 0.0) + size
    return reading
