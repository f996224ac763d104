"""Reads what this machine has for us: processors and memory, less what a container or service may use.

And keeps connections to it away from the proxy that a company's environment names, and lets a process end in
order when the machine asks for its end.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

MOST_FILES = 65_536
CGROUPS = Path("/sys/fs/cgroup")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_VARIABLES = ("no_proxy", "NO_PROXY")  # readers prefer the first; some know only one
OWN_GROUP = Path("/proc/self/cgroup")
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def host_cpus() -> int:
    """Processors that this process may use, a part of one counting as one.

    The quota of its control group counts (`docker run --cpus`, Kubernetes' limits, systemd's CPUQuota):
    threads beyond it are stopped for the rest of each 100 ms, all at once.
    """
    allowed = len(os.sched_getaffinity(0))
    for group in _groups():
        try:
            quota, period = (group / "cpu.max").read_text().split()
            allowed = min(allowed, max(1, math.ceil(int(quota) / int(period))))
        except (OSError, ValueError):  # no limit: the file is not there, or says "max"
            continue
    return allowed


def raise_open_files() -> int:
    """Lets this process have as many descriptors as it may, and returns how many: a shell gives 1,024.

    No more than MOST_FILES: some programs go through all that there could be.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MOST_FILES if hard == unlimited else min(hard, MOST_FILES)
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return MOST_FILES if soft == unlimited else soft


def host_memory() -> tuple[int, int]:
    """Bytes in all and free bytes: the machine's, or what the control groups leave.

    A group's use counts files that were read, as built engines: what the kernel gives back of them is free.
    """
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kibibytes = {words[0]: int(words[1]) for words in lines}
    total, free = kibibytes["MemTotal:"] << 10, kibibytes["MemAvailable:"] << 10
    for group in _groups():
        try:
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text()) - _idle_files(group)
        except (OSError, ValueError):
            continue
        total, free = min(total, limit), min(free, limit - used)
    return total, free


def _idle_files(group: Path) -> int:
    """Bytes of files that a control group keeps in memory and does not work on, as Kubernetes counts them."""
    with suppress(OSError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, size = line.partition(" ")
            if name == "inactive_file":
                return int(size)
    return 0


def free_room(place: Path | int) -> float:
    """Bytes that this user may still write to the disk of a path or a descriptor; inf: it does not tell."""
    disk = os.statvfs(place)
    free = disk.f_bavail if os.geteuid() else disk.f_bfree
    return free * disk.f_frsize if disk.f_blocks else math.inf


def _groups() -> Iterator[Path]:
    """This process's control group and those above it (version 2); a container sees its own as the root."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        lines = []
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    group = CGROUPS / own.strip("/")
    yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(CGROUPS))


def exempt_loopback(environment: MutableMapping[str, str]) -> None:
    """Adds this machine's names to `no_proxy`, for gRPC, urllib, httpx and libcurl.

    With `http_proxy` alone all of them ask the proxy for 127.0.0.1: the server was ready, and every request
    to it failed.
    """
    given = {name.strip() for key in _VARIABLES for name in environment.get(key, "").split(",")} - {""}
    if "*" not in given:
        environment.update(dict.fromkeys(_VARIABLES, ",".join([*sorted(given - {*_LOOPBACK}), *_LOOPBACK])))


def end_in_order() -> None:
    """Lets SIGTERM and SIGHUP (a terminal that is closed) end this process as Ctrl-C does, by an exception.

    By default both end it at once, and what it has begun stays: temporary folders, half an engine, a script
    that goes on. Who ignores them goes on to, as under nohup; so does who handles them already.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name in _ENDS:
        if signal.getsignal(name) == signal.SIG_DFL:
            signal.signal(name, _end)


def _end(number: int, frame: FrameType | None) -> None:
    # One more, or the other one, must not end what is put in order now: a closed terminal's SIGHUP is
    # followed by a parent's SIGTERM. Were they ignored, so they would be by what is started now.
    for name in _ENDS:
        if signal.getsignal(name) is _end:
            signal.signal(name, _heard)
    sys.exit(128 + number)


def _heard(number: int, frame: FrameType | None) -> None:
    """Does nothing: the process ends already."""


def settle_python(environment: MutableMapping[str, str]) -> None:
    """Takes from an environment what ends libraries or our scripts.

    PYTHONOPTIMIZE=2 leaves no docstrings, and some read their own; with PYTHONSAFEPATH a script does not find
    what lies beside it; without PYTHONUTF8 and a locale libraries open no path that is not ASCII.
    """
    for name in ("PYTHONOPTIMIZE", "PYTHONSAFEPATH"):
        environment.pop(name, None)
    environment["PYTHONUTF8"] = "1"
