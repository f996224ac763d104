"""Finds the processes of Python models, and counts those that run."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

STUB = "triton_python_backend_stub"


class StubWatch:
    """One tritonserver and its stubs, of which each instance of a Python model has one. Of one thread.

    The kernel tells of an end at once, through a descriptor of each process (Linux 5.3).

    Raises: ProcessLookupError: there is no such process any more.
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self.ended = False  # tritonserver itself
        self._stubs: dict[int, tuple[int, str]] = {}  # descriptor → process and model
        self._stopped: dict[int, float] = {}  # process → when it was first seen to stand still
        self._poll = select.poll()
        self._own = os.pidfd_open(server)
        self._poll.register(self._own, select.POLLIN)

    def refresh(self) -> None:
        """Looks for stubs that were started since the last look."""
        known = {pid for pid, _ in self._stubs.values()}
        for pid in children(self._server):
            if pid not in known and (model := model_of(pid)):
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    descriptor = os.pidfd_open(pid)
                    self._stubs[descriptor] = pid, model
                    self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout: float) -> None:
        """Waits up to `timeout` seconds for an end, and takes the stubs that ended off the count."""
        for descriptor, _ in self._poll.poll(timeout * 1000):
            if descriptor == self._own:
                self.ended = True
            else:
                self._forget(descriptor)

    def stopped(self) -> Iterator[tuple[int, str, float]]:
        """Processes that a signal has stopped: process, model, seconds since that was seen first."""
        now = time.monotonic()
        stopped = {pid: model for pid, model in self._stubs.values() if _is_stopped(pid)}
        self._stopped = {pid: self._stopped.get(pid, now) for pid in stopped}
        for pid, model in stopped.items():
            yield pid, model, now - self._stopped[pid]

    def count(self, model: str) -> int:
        """How many processes of a model run."""
        return sum(own == model for _, own in self._stubs.values())

    def close(self) -> None:
        for descriptor in list(self._stubs):
            self._forget(descriptor)
        os.close(self._own)

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        del self._stubs[descriptor]


def children(pid: int) -> Iterator[int]:
    """The processes that the threads of `pid` started and that run."""
    # Its end removes what is being listed, that of a thread its file; or no descriptor is left.
    threads = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for thread in os.listdir(threads):  # a hundred of tritonserver's: quicker than by `Path`
            with (
                contextlib.suppress(OSError),
                open(f"{threads}/{thread}/children", "rb", buffering=0) as file,
            ):
                yield from map(int, file.read().split())


def _is_stopped(pid: int) -> bool:
    try:
        # After the command's name, which may hold anything: "1234 (python) T 1 …".
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b") ")[2][:1] in b"Tt"
    except OSError:
        return False


def model_of(pid: int) -> str:
    """The model whose stub a process is; empty: it is none."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    if len(command) < 2 or not command[0].endswith(STUB.encode()):
        return ""
    return Path(os.fsdecode(command[1])).parent.parent.name  # …/MODEL/VERSION/model.py
