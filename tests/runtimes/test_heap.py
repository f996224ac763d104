"""Large arrays leave nothing behind in a process that gives large blocks back."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A first large array teaches glibc to keep such sizes; the last one stays at the end of the heap and pins it.
SCRIPT = """
import os
import numpy as np
from trimodal.runtimes.heap import give_back_large_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

if {fixed}:
    give_back_large_blocks()
for _ in range(2):
    np.ones(24 << 20, np.uint8)
before = resident()
large = [np.ones(1 << 20, np.uint8) for _ in range(64)]
last = large.pop()
del large
print(resident() - before)
"""


@pytest.mark.parametrize(("fixed", "least", "most"), [(True, -4, 4), (False, 32, 80)])
def test_what_is_freed_is_no_longer_resident(fixed, least, most):
    run = [sys.executable, "-c", SCRIPT.format(fixed=fixed)]
    kept = float(subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert least < kept < most, "MiB of 63 that were freed"


# Blocks too small to be mapped by themselves, every second of which stays and pins the heap.
FREED = """
import gc
from trimodal.runtimes.heap import give_back_freed
{resident}
blocks = [bytearray(b"x" * 64_000) for _ in range(2_000)]
before = resident()
del blocks[::2]
gc.collect()
give_back_freed()
print(before - resident())
"""


def test_what_is_freed_within_the_heap_is_given_back():
    resident = SCRIPT[SCRIPT.index("def resident") : SCRIPT.index("if {fixed}")]
    run = [sys.executable, "-c", "import os\n" + FREED.format(resident=resident)]
    freed = float(subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert freed > 40, "MiB of 61"
