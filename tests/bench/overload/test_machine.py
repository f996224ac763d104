"""Memory of a process group, on a process that this test starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from trimodal.bench.overload import machine
from trimodal.bench.overload.machine import (
    MemoryWatch,
    Ticks,
    read_memory,
    read_ticks,
    share_of_others,
)

GROW = "import sys; sys.stdin.readline(); block = bytearray(b'x') * (64 << 20); print('grown', flush=True); "


@pytest.fixture
def process():
    """A process in a group of its own that takes 64 MiB when it gets a line, and ends at the next."""
    with subprocess.Popen(
        [sys.executable, "-c", GROW + "sys.stdin.readline()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        yield started
        started.stdin.close()
        started.wait(20)


def grow(process):
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "grown\n"


def until(holds):
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_what_a_group_takes(process):
    until(lambda: read_memory(process.pid).server > 1)
    before = read_memory(process.pid)
    grow(process)
    after = read_memory(process.pid)
    assert after.server - before.server == pytest.approx(64, abs=8)
    assert (after.engine, after.total) == (0, after.server)


def test_a_group_without_processes_takes_nothing():
    with subprocess.Popen(["true"], start_new_session=True) as ended:
        pass
    assert read_memory(ended.pid).total == 0


def test_the_most_is_seen_in_between(process, monkeypatch):
    monkeypatch.setattr(machine, "_EVERY_S", 0.02)
    until(lambda: read_memory(process.pid).server > 1)
    with MemoryWatch(process.pid) as watch:
        grow(process)
        until(lambda: watch.most.server > 60)
        process.stdin.close()
        process.wait(20)
    assert watch.before.server < 40
    assert watch.after.total == 0
    assert watch.most.server > 60


def test_the_engine_is_told_apart():
    script = "import sys; print(flush=True); sys.stdin.readline()"
    # What `python -m trimodal.llm FD` has as its command line, without an engine in it.
    command = [sys.executable, "-c", script, "-m", "trimodal.llm.engine_core", "3"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as started:
        started.stdout.readline()
        memory = read_memory(os.getpgid(started.pid))
        started.stdin.close()
        started.wait(20)
    assert memory.engine > 1
    assert memory.server == 0


SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (Ticks(1000, 400, 300), 0.1),
        (Ticks(1000, 300, 300), 0.0),
        (Ticks(1000, 290, 300), 0.0),  # the counters are not read at one moment
        (Ticks(1000, 1000, 0), 1.0),
        (Ticks(0, 0, 0), 0.0),
    ],
)
def test_what_is_busy_and_not_ours_is_theirs(after, share):
    assert share_of_others(Ticks(), after) == pytest.approx(share)


def test_this_process_and_the_group_are_ours():
    before = read_ticks(group=-1)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    mine = read_ticks(group=-1).ours - before.ours
    assert mine >= 0.25 * os.sysconf("SC_CLK_TCK")
    with subprocess.Popen(
        [sys.executable, "-c", SPIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as spinning:
        assert spinning.stdout.readline() == "done\n"
        with_it, without = read_ticks(spinning.pid), read_ticks(group=-1)
        spinning.stdin.close()
        spinning.wait(20)
    assert with_it.ours - without.ours >= 0.4 * os.sysconf("SC_CLK_TCK")
    assert with_it.all >= with_it.busy >= with_it.ours > 0
