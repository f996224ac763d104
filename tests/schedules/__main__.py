"""Plays many schedules of threads by seed, and prints what they find."""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import Pool

from tests.schedules.play import play
from tests.schedules.scenarios.table import SCENARIOS
from tests.schedules.world import Finding

_KINDS = {kind.__name__: kind for kind in SCENARIOS}
_CHUNK = 50


def main() -> int:
    """Prints a row for each scenario, and every finding; returns 1 if there is one."""
    parser = argparse.ArgumentParser("scripts/ci/schedules", description="Plays schedules by seed.")
    parser.add_argument("count", type=int, help="schedules, of all scenarios together")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="+", choices=_KINDS, default=list(_KINDS), metavar="SCENARIO")
    parser.add_argument("--processes", type=int, default=1, help="that play at once")
    options = parser.parse_args()
    if options.count < 1 or options.processes < 1:
        parser.error("count and --processes are at least 1")
    each = -(-options.count // len(options.only))
    began, total, wrong = time.monotonic(), 0, 0
    print(f"{'scenario':<12} {'schedules':>9} {'a minute':>9} {'switches':>9} {'findings':>9}")
    with Pool(options.processes) as pool:
        for name in options.only:
            at = time.monotonic()
            end = options.first + each
            starts = range(options.first, end, _CHUNK)
            parts = [(name, start, min(start + _CHUNK, end)) for start in starts]
            played = pool.starmap(_play_all, parts, chunksize=1)
            minutes = (time.monotonic() - at) / 60
            switches, told = sum(part[0] for part in played), [one for part in played for one in part[1]]
            print(f"{name:<12} {each:>9} {each / minutes:>9.0f} {switches / each:>9.0f} {len(told):>9}")
            for one in told:
                print(one, file=sys.stderr)
            sys.stdout.flush()
            total, wrong = total + each, wrong + len(told)
    seconds = time.monotonic() - began
    print(f"{total} schedules in {seconds:.1f} s, {total / seconds * 60:.0f} a minute; {wrong} findings")
    return min(wrong, 1)


def _play_all(name: str, first: int, end: int) -> tuple[int, list[str]]:
    """Switches in these schedules, and what was found."""
    switches, found = 0, []
    for seed in range(first, end):
        try:
            switches += play(_KINDS[name], seed).switches
        except Finding as finding:
            found.append(str(finding))
    return switches, found


if __name__ == "__main__":
    sys.exit(main())
