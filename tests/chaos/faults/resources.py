"""Takes away what a server lives on: disk, shared memory, descriptors, memory."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import resource
import subprocess
from pathlib import Path

from tests.chaos.faults.base import CannotBeMade, Fault, Needs
from tests.chaos.faults.processes import HARMS
from tests.chaos.load import STEADY
from tests.chaos.served import Served, limit

SHM = Path("/dev/shm")


def mounted(place: Path, size: str) -> tuple[str, ...]:
    """A command that runs the rest of its arguments where `place` is a small disk of its own.

    Raises:
        CannotBeMade: this machine allows no namespaces.
    """
    within = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec")
    if subprocess.run([*within, "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode:
        raise CannotBeMade("unshare -Urm is not allowed here")
    return (*within, f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"', str(place))


def fill(file: Path) -> None:
    """Writes to a file until the disk is full."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    out.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


class FullDisk(Fault):
    """The disk of the cache and the log is full."""

    name, holds_s = "full-disk", 4.0

    def needs(self, directory: Path) -> Needs:
        disk = directory / "disk"
        disk.mkdir(parents=True, exist_ok=True)
        return Needs(prefix=mounted(disk, "4m"), changes={"llm": {"cache": "exact"}})

    def inject(self, served: Served) -> None:
        fill(served.seen(served.disk) / "filler")

    def heal(self, served: Served) -> None:
        (served.seen(served.disk) / "filler").unlink()


class FullSharedMemory(Fault):
    """/dev/shm is full, where Triton's processes exchange tensors; pictures of 3 MB want more of it.

    Small pictures meet them in the pool of vision's process, and may be what would have made it grow.
    """

    name, holds_s = "full-shm", 4.0
    harms = frozenset({"photo", "picture", "assistant"})
    each = {**STEADY, "photo": 2}
    limit = ""

    def needs(self, directory: Path) -> Needs:
        return Needs(prefix=mounted(SHM, "64m"))

    def inject(self, served: Served) -> None:
        fill(served.seen(SHM) / "filler")

    def heal(self, served: Served) -> None:
        (served.seen(SHM) / "filler").unlink()


class OutOfDescriptors(Fault):
    """A process may open no more files or connections than it has."""

    holds_s = 4.0

    def __init__(self, part: str) -> None:
        self.part, self.name = part, f"descriptors-{part}"
        self.harms = frozenset({"new"}) | (HARMS[part] if part not in ("tritonserver", "launcher") else set())
        self.each = {**STEADY, "new": 2}
        self._pid = self._was = 0

    def inject(self, served: Served) -> None:
        self._pid = served.pid(self.part)
        taken = set(map(int, os.listdir(f"/proc/{self._pid}/fd")))
        free = next(number for number in itertools.count() if number not in taken)
        self._was = limit(self._pid, resource.RLIMIT_NOFILE, free)

    def heal(self, served: Served) -> None:
        with contextlib.suppress(ProcessLookupError):  # it died of it
            limit(self._pid, resource.RLIMIT_NOFILE, self._was)


class OutOfMemory(Fault):
    """A process gets hardly any more memory than it has."""

    holds_s = 4.0

    def __init__(self, part: str) -> None:
        self.part, self.name, self.harms = part, f"memory-{part}", HARMS[part] | {"photo"}
        self.each = {**STEADY, "photo": 2}
        self._pid = self._was = 0
        if part == "tritonserver":
            self.limit = "a tritonserver without memory ends"

    def inject(self, served: Served) -> None:
        self._pid = served.pid(self.part)
        found = re.search(r"VmSize:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
        assert found
        self._was = limit(self._pid, resource.RLIMIT_AS, (int(found[1]) << 10) + (1 << 20))

    def heal(self, served: Served) -> None:
        with contextlib.suppress(ProcessLookupError):  # it died of it
            limit(self._pid, resource.RLIMIT_AS, None)
