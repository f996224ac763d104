"""`python -m tests.chaos`: makes the faults that are named, or all, and prints the table."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.chaos import catalogue
from tests.chaos.faults.base import CannotBeMade
from tests.chaos.judge import Row
from tests.chaos.served import Gone

COLUMNS = ("fault", "clients saw", "told within", "ITL p99", "back after", "lost", "SIGTERM", "falls short")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/ci/chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="as --list names them; a prefix will do")
    parser.add_argument("--list", action="store_true", help="the names, and nothing else")
    parser.add_argument(
        "--count", type=int, default=catalogue.VANISHING, help="clients that vanish; freezes, 50 at most"
    )
    given = parser.parse_args()
    every = catalogue.faults(given.count)
    chosen = [name for name in every if any(map(name.startswith, given.faults or [""]))]
    if given.list or not chosen:
        print("\n".join(every))
        return 0 if given.list else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends first
    failed = False
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="trimodal-chaos-") as directory:
            try:
                row = asyncio.run(every[name](Path(directory)))
            except CannotBeMade as error:
                row = Row(name, saw=f"not made: {error}")
            except Gone as error:
                row = Row(name, missed=[f"the server did not start: {str(error)[-400:]}"])
            except Exception as error:  # the others are made all the same
                traceback.print_exc()
                row = Row(name, missed=[f"{type(error).__name__}: {error}"])
        failed |= bool(row.missed and not row.limit)
        print(line(row), flush=True)
    return int(failed)


def line(row: Row) -> str:
    """One row of the table, which is Markdown."""
    short = "; ".join([*([f"known: {row.limit}"] if row.limit else []), *row.missed])
    itl = f"{row.itl[0] * 1e3:.0f} → {row.itl[1] * 1e3:.0f} ms" if row.itl else ""
    told, back, stop = (
        "" if seconds is None else f"{seconds:.1f} s" for seconds in (row.told_s, row.recovery_s, row.stop_s)
    )
    cells = (row.fault, row.saw, told, itl, back, row.lost, stop, short)
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') or '–' for cell in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
