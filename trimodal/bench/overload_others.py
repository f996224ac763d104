"""How much of this machine's CPU time others took during a level: what makes its times doubtful.

Others are all processes but this one and the server's, and the host that steals time from a
virtual machine. It reads /proc and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_IDLE = (3, 4)  # idle and iowait of the first line of /proc/stat
_COUNTED = 8  # user to steal; guests are in user already
_USER_SYSTEM = slice(11, 13)  # of /proc/PID/stat, after the name


@dataclass(frozen=True)
class Ticks:
    """CPU time in clock ticks since some time: of all CPUs, not idle, and ours."""

    all: int = 0
    busy: int = 0
    ours: int = 0


def read_ticks(group: int) -> Ticks:
    """The counters now; ours are this process and a process group."""
    fields = [
        int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : 1 + _COUNTED]
    ]
    ours = 0
    for directory in Path("/proc").glob("[0-9]*"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            process = int(directory.name)
            if process == os.getpid() or os.getpgid(process) == group:
                ours += sum(
                    map(int, (directory / "stat").read_text().rpartition(")")[2].split()[_USER_SYSTEM])
                )
    return Ticks(sum(fields), sum(fields) - sum(fields[index] for index in _IDLE), ours)


def share_of_others(before: Ticks, after: Ticks) -> float:
    """Of the CPU time between two readings, 0 to 1."""
    total = after.all - before.all
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return min(1.0, max(0.0, others / total)) if total > 0 else 0.0


class OthersWatch:
    """From `with` to its end; then `share` is known."""

    def __init__(self, group: int) -> None:
        self._group = group
        self.share = 0.0

    def __enter__(self) -> OthersWatch:
        self._before = read_ticks(self._group)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.share = share_of_others(self._before, read_ticks(self._group))
