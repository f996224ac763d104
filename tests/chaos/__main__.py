"""`python -m tests.chaos`: makes the faults that are named, or all, and prints the table."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.chaos import catalogue, table
from tests.chaos.faults.base import CannotBeMade
from tests.chaos.judge import Row
from tests.chaos.served import Gone


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/ci/chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="as --list names them; a prefix will do")
    parser.add_argument("--list", action="store_true", help="the names, and nothing else")
    parser.add_argument("--real", action="store_true", help="the demo engines in place of fakes")
    parser.add_argument("--count", type=int, default=catalogue.VANISHING, help="clients that vanish")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    given = parser.parse_args()
    faults = catalogue.faults(given.count)
    chosen = catalogue.named(given.faults)
    if given.list or not chosen:
        print("\n".join(faults))
        return 0 if given.list else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends first
    rows: list[Row] = []
    print(table.HEAD)
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="trimodal-chaos-") as directory:
            try:
                row = asyncio.run(faults[name](Path(directory), given.real))
            except CannotBeMade as error:
                row = Row(name, saw=f"not made: {error}")
            except Gone as error:
                row = Row(name, missed=[f"the server did not start: {str(error)[-400:]}"])
            except Exception as error:  # the others are made all the same
                traceback.print_exc()
                row = Row(name, missed=[f"{type(error).__name__}: {error}"])
        rows.append(row)
        print(table.line(row), flush=True)
    if given.json:
        given.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")
    return 1 if any(row.missed and not row.limit for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
