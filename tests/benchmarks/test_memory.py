"""What a server's processes hold is read, added up and kept at its most."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.memory.processes import Memory, parse_pss, read

ROLLUP = """55d0c7a00000-7ffd3a1f9000 ---p 00000000 00:00 0                          [rollup]
Rss:              140288 kB
Pss:               96256 kB
Pss_Dirty:         93184 kB
Pss_Shmem:           512 kB
"""


def test_the_proportional_set_size_is_read() -> None:
    assert parse_pss(ROLLUP) == 94.0


def test_a_process_that_is_ending_holds_nothing() -> None:
    assert parse_pss("") == 0.0


def test_a_peak_by_process_is_its_own_and_that_of_all_is_of_one_moment() -> None:
    memory = Memory({"llm": 50.0, "vision": 100.0}, {"llm": 60.0, "vision": 110.0})
    memory.see({"llm": 200.0, "vision": 120.0})
    memory.see({"llm": 70.0, "vision": 190.0, "speech": 10.0})
    assert memory.whole == [150.0, 170.0, 320.0]
    assert list(memory.rows()) == [
        ("llm", [50.0, 60.0, 200.0]),
        ("vision", [100.0, 110.0, 190.0]),
        ("speech", [0.0, 0.0, 10.0]),
    ]


def test_what_a_process_started_is_read_with_it() -> None:
    command = [sys.executable, "-c", "held = bytearray(b'x' * (40 << 20)); print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        reading = read(os.getpid(), "tests")
        child.kill()
    assert reading["tests"] > 5.0
    assert reading[os.path.basename(sys.executable)] > 40.0
