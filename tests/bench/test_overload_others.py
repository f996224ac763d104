"""CPU time of others: what is counted as theirs, on readings that are written down and on real ones."""

import os
import subprocess
import sys
import time

import pytest

from trimodal.bench.overload_others import OthersWatch, Ticks, read_ticks, share_of_others

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


def test_a_watch_tells_a_share():
    with OthersWatch(group=-1) as watch:
        time.sleep(0.2)
    assert 0 <= watch.share <= 1
