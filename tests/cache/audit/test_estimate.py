"""The bounds hold whenever they are looked at, and what is old is forgotten."""

from __future__ import annotations

import random

import pytest

from trimodal.cache.audit.estimate import WINDOW, Bounds, Estimate


def fed(rate: float, samples: int, seed: int = 0) -> Estimate:
    estimate, draw = Estimate(), random.Random(seed)
    for _ in range(samples):
        value = draw.random() < rate
        estimate.add(value, value)
    return estimate


def test_without_samples_anything_may_be() -> None:
    assert Estimate().bounds() == Bounds(0.0, 0.0, 1.0)


def test_bounds_hold_at_every_look() -> None:
    """Of 40 streams at most 2 may ever leave them."""
    missed = 0
    for seed in range(40):
        estimate, draw = Estimate(), random.Random(seed)
        left = False
        for look in range(400):
            value = draw.random() < 0.05
            estimate.add(value, value)
            if look % 20 == 19 and not left:
                _, lower, upper = estimate.bounds()
                left = not lower <= 0.05 <= upper
        missed += left
    assert missed <= 2


def test_a_thousand_samples_tell_a_half_percent_from_two() -> None:
    assert fed(0.0, 500).bounds().upper < 0.01
    assert fed(0.1, 200).bounds().lower > 0.03
    assert fed(0.5, 1000).bounds().rate == pytest.approx(0.5, abs=0.05)


def test_what_is_unclear_widens_both_bounds_and_is_not_in_the_rate() -> None:
    clear, unclear = Estimate(), Estimate()
    for number in range(400):
        clear.add(number % 20 == 0, number % 20 == 0)
        unclear.add(number % 20 == 0, number % 20 < 2)
    assert unclear.bounds().upper > clear.bounds().upper + 0.03
    assert unclear.bounds().lower == clear.bounds().lower
    assert unclear.bounds().rate == pytest.approx(20 / 380)


def test_it_forgets() -> None:
    estimate = fed(1.0, WINDOW)
    for _ in range(2 * WINDOW):
        estimate.add(False, False)
    rate, _, upper = estimate.bounds()
    assert (rate, upper < 0.01) == (0.0, True)
    # Its bounds are of half a window at least, and of one at most.
    assert fed(0.0, WINDOW).bounds().upper <= upper <= fed(0.0, WINDOW // 2).bounds().upper
