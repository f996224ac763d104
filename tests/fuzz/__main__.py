"""Sends made-up requests to a served stack on fake engines, for as many or as long as it is told to."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.served import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/ci/fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first; each makes a request")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="ends after so long")
    given = parser.parse_args()
    sys.exit(run.main(given.count, given.seed, given.seconds))
