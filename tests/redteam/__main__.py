"""Attacks a served stack: what tenants learn of each other, by answers and by time, and what floods take."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.redteam import clocks, floods, tenants

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/ci/redteam", description=__doc__)
    parser.add_argument("attacks", nargs="*", help="answers, clock, floods; all where none is named")
    parser.add_argument("--tries", type=int, default=200, help="of each cell; half of them are guessed")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each flood")
    given = parser.parse_args()
    attacks: dict[str, Callable[[Path], Iterator[tuple[str, bool]]]] = {
        "answers": lambda folder: tenants.table(folder, given.tries),
        "clock": lambda folder: clocks.table(folder, given.tries),
        "floods": lambda folder: floods.table(folder, given.seconds),
    }
    if unknown := set(given.attacks) - set(attacks):
        parser.error(f"{', '.join(sorted(unknown))}: the attacks are {', '.join(attacks)}")
    held = True
    for name in given.attacks or attacks:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for line, holds in attacks[name](Path(folder)):
                held &= holds
                print(f"  {line}", flush=True)
    sys.exit(not held)
