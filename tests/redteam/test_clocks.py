"""The stopwatch tells what can be told, and no more than chance where there is nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.redteam.clocks import CLOCKED, LOOK_S, SLOW, compare, guess
from tests.redteam.stack import stack
from tests.redteam.tenants import Trial


def trials(seed: int, gain_s: float) -> list[Trial]:
    """Two hundred, of 40 ± 10 ms; those that were sent before come so much sooner."""
    draw = random.Random(seed)
    coins = [coin for _ in range(2) for coin in draw.sample([True, False] * 50, 100)]
    return [Trial(coin, None, draw.gauss(0.04, 0.01) - gain_s * coin) for coin in coins]


@pytest.mark.parametrize("gain_s", [0.02, -0.02])
def test_two_deviations_are_told_sooner_or_later(gain_s: float) -> None:
    verdicts = [guess(trials(seed, gain_s)) for seed in range(20)]
    assert not any(one.holds for one in verdicts)
    assert sum(one.right for one in verdicts) > 0.8 * 20 * 100


def test_nothing_is_told_where_there_is_nothing() -> None:
    verdicts = [guess(trials(seed, 0.0)) for seed in range(50)]
    assert all(one.holds for one in verdicts)
    assert 0.45 < sum(one.right for one in verdicts) / (50 * 100) < 0.55


def test_equal_times_are_no_split() -> None:
    same = [Trial(coin, None, 0.04) for coin in [True, False, False, True] * 10]
    assert guess(same).right == 10


def test_each_cell_is_tried_by_another_tenant_and_by_the_same(tmp_path: Path) -> None:
    with stack(tmp_path, SLOW, LOOK_S) as served:
        for cell in CLOCKED.values():
            apart, control = compare(served, cell, 4)
            assert apart.guesses == 2
            assert (control is None) == (cell.name == "embeddings")
