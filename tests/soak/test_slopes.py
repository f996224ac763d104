"""A leak of known slope is found, noise and a step within the warm-up are none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.soak.slopes import HOUR, LIMITS, Series, fit, judge, loads

TOTAL = HOUR
TIMES = np.arange(0, TOTAL, 5.0)
NOISE = np.random.default_rng(0)
LEAK = 2 * LIMITS["memory"].per_hour


def memory(values: np.ndarray, times: np.ndarray = TIMES, name: str = "llm #1") -> Series:
    return Series(name, "memory", times, values)


def test_a_leak_is_found_with_its_slope() -> None:
    found = judge(memory(300 + LEAK * TIMES / HOUR + NOISE.normal(0, 2, len(TIMES))), TOTAL)
    assert found.word == "grows"
    assert found.low < LEAK < found.high
    assert found.slope == pytest.approx(LEAK, rel=0.1)


def test_noise_and_spikes_are_flat() -> None:
    values = 300 + NOISE.normal(0, 2, len(TIMES))
    values[::50] += 400
    found = judge(memory(values), TOTAL)
    assert found.word == "flat"
    assert found.low < 0 < found.high


def test_a_step_in_the_warm_up_is_ignored() -> None:
    assert judge(memory(np.where(TIMES < TOTAL / 3, 100.0, 300.0)), TOTAL).word == "flat"
    assert judge(memory(np.where(TIMES < TOTAL / 2, 300.0, 320.0)), TOTAL).word == "step"


def test_a_process_has_a_warm_up_of_its_own() -> None:
    late = TIMES[TIMES > TOTAL / 4]
    found = judge(memory(np.minimum(300.0, late / 5), late), TOTAL)
    assert found.began == pytest.approx(late[0] + (late[-1] - late[0]) / 3)
    assert found.word == "flat"


def test_noise_that_hides_the_slope_is_not_shown() -> None:
    assert judge(memory(300 + NOISE.normal(0, 200, len(TIMES))), TOTAL).word == "not shown"


def test_relative_limits_are_of_the_median() -> None:
    found = judge(Series("text", "p50", TIMES, np.full(len(TIMES), 80.0)), TOTAL)
    assert (found.slope, found.limit, found.word) == (0, pytest.approx(12), "flat")


def test_few_values_are_not_judged() -> None:
    short = TIMES[-80:]
    assert judge(memory(300 + LEAK * short, short), TOTAL).word == "short"
    assert judge(Series("text", "p50", [], []), TOTAL).word == "short"


def test_what_each_load_leaves_larger_is_found() -> None:
    parts = np.split(TIMES, 12)
    lives = [memory(np.full(60, 100.0 + load), part, f"embedding #{load}") for load, part in enumerate(parts)]
    assert {judge(one, TOTAL).word for one in lives} == {"short"}
    merged = loads([*lives, memory(np.full(len(TIMES), 300.0))], TOTAL)
    assert [one.name for one in merged] == ["embedding, load by load"]
    found = judge(merged[0], TOTAL)
    assert found.slope == pytest.approx(12, rel=0.01)
    assert found.word == "grows"


def test_a_slope_is_an_hour() -> None:
    assert fit([0, HOUR, 2 * HOUR], [1, 4, 7]) == (3, 3, 3)
