"""Schedules by seed find nothing wrong: a few here, more among the slow tests, any number by a command.

A seed that fails does so again: `scripts/ci/schedules 1 --first SEED --only SCENARIO`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.schedules.play import Scenario, play
from tests.schedules.scenarios.table import SCENARIOS

FEW, MORE = 20, 250


@pytest.mark.parametrize("kind", SCENARIOS)
@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, MORE), marks=pytest.mark.slow)], ids=["few", "more"]
)
def test_nothing_is_wrong_in_any_order(seeds: range, kind: type[Scenario]) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        seen += play(kind, seed).seen
    assert not [what for what in kind.comes_to if not seen[what]]


@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_seed_gives_the_same_schedule_again(kind: type[Scenario]) -> None:
    assert play(kind, 7) == play(kind, 7)


@pytest.mark.slow
def test_a_seed_gives_the_same_schedule_in_another_process() -> None:
    command = (
        "from tests.schedules.play import play\n"
        "from tests.schedules.scenarios.table import SCENARIOS\n"
        "print([play(kind, seed).digest for kind in SCENARIOS for seed in range(20)])"
    )

    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[2]
        arguments = [sys.executable, "-c", command]
        return subprocess.check_output(arguments, text=True, env=environment, cwd=root, timeout=60)

    assert digests("1") == digests("2")
