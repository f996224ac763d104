"""Ends every process that an engine started, also one that left its process group and its parent.

TensorRT-LLM starts its ranks by MPI, whose daemon moves to a session of its own and whose ranks to groups of
their own (Open MPI 4.1: orted --set-sid); once the engine is dead, nothing in the process table leads from it
to them. What they keep is the environment that they inherited: each engine has a mark in its own. A process
that writes its title over its environment, as vLLM's core does, is found by group, session or parent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from trimodal.runtimes.gpu_device import gpu_pids

logger = logging.getLogger(__name__)

MARK = "TRIMODAL_ENGINE"
_PROC = Path("/proc")
_SECONDS = 10.0  # for a process to die, and for its memory to be free
_TRACKER_SECONDS = 2.0
_GLANCE_SECONDS = 0.02


@dataclass(frozen=True)
class Process:
    """One that runs. A number may be given to another later: `started` (clock ticks) tells them apart."""

    pid: int
    started: int
    parent: int = field(compare=False)
    group: int = field(compare=False)
    session: int = field(compare=False)


class ProcessFamily:
    """Finds and ends the processes that one engine started.

    The engine's own must not be reaped before: its number would be free for another process.
    """

    def __init__(self) -> None:
        self.mark = uuid4().hex
        self._leader = 0
        self._seen: set[Process] = set()

    def lead(self, pid: int) -> None:
        """Takes the engine's own process, which was started with `mark` in its environment."""
        self._leader = pid

    def note(self) -> None:
        """Remembers who is there now: once the engine is dead, no parent leads to them."""
        self._seen |= self._members()

    def end(self) -> None:
        """Kills all but the engine's own process, and waits until none runs.

        Python's resource tracker ends by itself once all are dead, and removes what they left in /dev/shm:
        killed with them, each vLLM (0.32) left hundreds of MiB of names there.
        """
        deadline = time.monotonic() + _SECONDS
        spared_until = time.monotonic() + _TRACKER_SECONDS
        while True:
            self.note()
            if not (left := self._seen & set(_processes())):
                return
            trackers = {process for process in left if _tracks_resources(process.pid)}
            for process in left - trackers if time.monotonic() < spared_until else left:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                logger.error("processes of the engine do not end: %s", _numbers(left))
                return
            time.sleep(_GLANCE_SECONDS)

    def await_memory(self) -> None:
        """Waits until no GPU holds memory of theirs: the next engine takes what is free when it opens."""
        deadline = time.monotonic() + _SECONDS
        pids = {self._leader, *(process.pid for process in self._seen)}
        while held := pids & gpu_pids():
            if time.monotonic() > deadline:
                logger.error("GPU memory of the ended engine is not free, the driver lists %s", sorted(held))
                return
            time.sleep(_GLANCE_SECONDS)

    def _members(self) -> set[Process]:
        mark = f"{MARK}={self.mark}".encode()
        members: dict[int, Process] = {}
        others = [process for process in _processes() if process.pid != self._leader]
        while True:
            parents = {self._leader, *members}
            more = [
                process
                for process in others
                if self._leader in (process.group, process.session)
                or process.parent in parents
                or (not members and _marked(process.pid, mark))
            ]
            others = [process for process in others if process not in more]
            if not more:
                return set(members.values())
            members |= {process.pid: process for process in more}


def _processes() -> Iterator[Process]:
    """All that run; what is dead and waits for its parent does not."""
    for name in os.listdir(_PROC):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                text = (_PROC / name / "stat").read_text(errors="replace")
                state, *fields = text.rpartition(")")[2].split()  # proc(5), from field 3 on
                if state not in "ZX":
                    parent, group, session = map(int, fields[:3])
                    yield Process(int(name), int(fields[18]), parent, group, session)


def _marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # it has gone, or belongs to another user
        return False


def _tracks_resources(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def _numbers(processes: set[Process]) -> str:
    return ", ".join(str(pid) for pid in sorted(process.pid for process in processes))
