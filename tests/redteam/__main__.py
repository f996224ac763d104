"""Attacks a served stack on fake engines: what tenants learn of each other, and what floods of a key take."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.redteam import floods, tenants
from tests.redteam.stack import stack

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/ci/redteam", description=__doc__)
    parser.add_argument("--tries", type=int, default=200, help="of each cell; half of them are guessed")
    parser.add_argument("--requests", type=int, default=48, help="of each flood")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a").mkdir()
        (Path(folder) / "b").mkdir()
        with stack(Path(folder) / "a") as served:
            lines, apart = tenants.table(served, given.tries)
        print("\n".join(["two tenants", *lines, "", "one hostile key"]), flush=True)
        held = True
        for line, holds in floods.table(Path(folder) / "b", given.requests):
            held &= holds
            print(line, flush=True)
    sys.exit(not (apart and held))
