"""Fuzzes for as long as it is told to: our parsers under atheris, or the served stack."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.targets.table import NAMES


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/ci/fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    guided = commands.add_parser("coverage", help="our parsers, guided by the lines that they reach")
    guided.add_argument("target", nargs="*", help=f"of {', '.join(NAMES)}; all of them where none is named")
    guided.add_argument("--seconds", type=int, default=120, help="for each target")
    kept = commands.add_parser(
        "keep", help="chooses the inputs to keep in tests/fuzz/corpus: few, which reach every line"
    )
    kept.add_argument("target", nargs="*")
    asked = commands.add_parser("requests", help="requests to a served stack on fake engines")
    asked.add_argument("--count", type=int, default=100_000)
    asked.add_argument("--seed", type=int, default=0, help="number of the first; each makes a request")
    asked.add_argument("--seconds", type=float, default=float("inf"), help="ends after so long")
    given = parser.parse_args()
    if given.command == "coverage":
        from tests.fuzz import coverage

        return coverage.run(given.target, given.seconds)
    if given.command == "keep":
        from tests.fuzz import coverage

        for name in given.target or NAMES:
            print(f"{name}: {coverage.keep(name)} inputs")
        return 0
    from tests.fuzz.served import run

    return run.main(given.count, given.seed, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
