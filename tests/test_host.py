"""The processors and the memory of this machine, and of a container or a service with a limit."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trimodal import host


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control group of this process, two below the root."""
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    monkeypatch.setattr(host, "OWN_GROUP", tmp_path / "own")
    (tmp_path / "own").write_text("3:cpuset:/\n0::/system.slice/trimodal.service\n")
    folder = tmp_path / "system.slice" / "trimodal.service"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("limit", [None, "max", str(1 << 20)])
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_limit_of_memory_counts_where_there_is_one(group: Path, limit: str | None, above: int) -> None:
    folder = [group, *group.parents][above]
    if limit:
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{1 << 18}\n")
    total, free = host.host_memory()
    if limit and limit.isdecimal():
        assert (total, free) == (1 << 20, 3 << 18)
    else:
        assert total > free > 1 << 20


def test_files_that_were_read_are_no_used_memory(group: Path) -> None:
    """A container that had built or read engines had nothing free."""
    (group / "memory.max").write_text(f"{1 << 20}\n")
    (group / "memory.current").write_text(f"{1 << 20}\n")
    (group / "memory.stat").write_text(f"anon {1 << 18}\nfile {3 << 18}\ninactive_file {1 << 19}\n")
    assert host.host_memory() == (1 << 20, 1 << 19)


@pytest.mark.parametrize(
    ("quota", "cpus"), [("max", 8), ("100000", 1), ("50000", 1), ("150000", 2), ("1600000", 8)]
)
def test_a_quota_of_processors(group: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cpus: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert host.host_cpus() == 8
    (group.parent / "cpu.max").write_text(f"{quota} 100000\n")
    assert host.host_cpus() == cpus


def test_without_control_groups(group: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "OWN_GROUP", tmp_path / "missing")
    assert host.host_cpus() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "corp.example, localhost"}, "corp.example,localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "b", "no_proxy": "a"}, "a,b,localhost,127.0.0.1,::1"),
    ],
)
def test_this_machine_is_exempt_and_what_was_stays(given: dict[str, str], expected: str) -> None:
    environment = dict(given)
    host.exempt_loopback(environment)
    assert environment == {"no_proxy": expected, "NO_PROXY": expected}
    host.exempt_loopback(environment)
    assert environment["no_proxy"] == expected


def test_a_star_exempts_everything_already() -> None:
    environment = {"no_proxy": "*"}
    host.exempt_loopback(environment)
    assert environment == {"no_proxy": "*"}


@pytest.mark.parametrize(
    ("before", "number", "status", "told"),
    [
        ("SIG_DFL", signal.SIGTERM, 128 + signal.SIGTERM, "in order\n"),
        ("SIG_DFL", signal.SIGHUP, 128 + signal.SIGHUP, "in order\n"),
        ("SIG_IGN", signal.SIGHUP, 0, "went on\nin order\n"),
    ],
)
def test_an_end_from_outside_is_one_in_order(before: str, number: int, status: int, told: str) -> None:
    """What it had begun stayed. A second signal, as a service manager's to all processes, changes nothing."""
    program = f"""
import os, signal
from trimodal.host import end_in_order

signal.signal({int(number)}, signal.{before})
end_in_order()
try:
    os.kill(os.getpid(), {int(number)})
    print("went on", flush=True)
finally:
    os.kill(os.getpid(), {int(number)})
    print("in order", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, told)


@pytest.mark.parametrize("first", ["SIGHUP", "SIGTERM"])
def test_the_other_signal_does_not_end_what_is_put_in_order(first: str) -> None:
    """A terminal that is closed tells its whole group, and the parent that ends of it tells its children."""
    second = {"SIGHUP": "SIGTERM", "SIGTERM": "SIGHUP"}[first]
    program = f"""
import os, signal, subprocess, sys
from trimodal.host import end_in_order

end_in_order()
try:
    os.kill(os.getpid(), signal.{first})
finally:
    for name in (signal.{second}, signal.{first}):
        os.kill(os.getpid(), name)
    child = "import signal as s; print(all(s.getsignal(n) == s.SIG_DFL for n in (s.SIGTERM, s.SIGHUP)))"
    subprocess.run([sys.executable, "-c", child])
    print("in order", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (128 + signal.Signals[first], "True\nin order\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("user", "room"), [(0, 3 << 12), (1000, 2 << 12)])
def test_the_last_room_of_a_disk_is_its_superusers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int, room: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    disk = SimpleNamespace(f_bavail=2, f_bfree=3, f_blocks=9, f_frsize=1 << 12)
    monkeypatch.setattr("os.statvfs", lambda place: disk)
    assert host.free_room(tmp_path) == room
    disk.f_blocks = 0  # as some network's file systems have it
    assert host.free_room(tmp_path) == math.inf
