"""The bounds hold whenever they are looked at; a rate that rises is noticed, however long it kept low."""

from __future__ import annotations

import random

import pytest

from trimodal.cache.audit.estimate import ALARM, WINDOW, Bounds, Estimate, ShiftDetector, Sums


def fed(rate: float, samples: int, seed: int = 0) -> Estimate:
    estimate, draw = Estimate(), random.Random(seed)
    for _ in range(samples):
        value = draw.random() < rate
        estimate.add(value, value)
    return estimate


def test_without_samples_anything_may_be() -> None:
    assert Estimate().bounds() == Bounds(0.0, 0.0, 1.0, 0)


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
                _, lower, upper, _ = estimate.bounds()
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


def test_samples_are_weighed_by_the_inverse_of_their_probability() -> None:
    """Those of one kind are drawn always, all agree; of the other 1 in 50 is drawn, half of them agree."""
    estimate, draw = Estimate(window=100_000), random.Random(3)
    for _ in range(60_000):
        rare = draw.random() < 0.5
        probability = 0.02 if rare else 1.0
        if draw.random() < probability:
            value = draw.random() < 0.5 if rare else False
            estimate.add(value, value, 0.02 / probability)
    rate, lower, upper, _ = estimate.bounds()
    assert rate == pytest.approx(0.25, abs=0.03)
    assert lower < 0.25 < upper


def test_it_forgets() -> None:
    estimate = fed(1.0, WINDOW)
    for _ in range(2 * WINDOW):
        estimate.add(False, False)
    rate, _, upper, samples = estimate.bounds()
    assert (rate, upper < 0.01) == (0.0, True)
    assert WINDOW // 2 <= samples <= WINDOW


def test_below_is_the_upper_bound() -> None:
    sums = Sums()
    for number in range(900):
        sums.add(number < 3, number < 3, 1.0)
    upper = sums.upper(0.05)
    assert sums.below(upper + 1e-4, 0.05)
    assert not sums.below(upper - 1e-4, 0.05)


def test_a_shift_is_noticed_soon_after_three_thousand_quiet_samples() -> None:
    delays = []
    for seed in range(10):
        detector, draw = ShiftDetector(0.01), random.Random(seed)
        assert not any(detector.add(False) for _ in range(3_000))
        delays.append(next(count for count in range(1, 10_000) if detector.add(draw.random() < 0.1)))
    assert sorted(delays)[5] < 60


@pytest.mark.slow
def test_at_the_bound_itself_alarms_are_rare() -> None:
    counts = []
    for seed in range(30):
        detector, draw = ShiftDetector(0.01), random.Random(seed)
        counts.append(next((at for at in range(6000) if detector.add(draw.random() < 0.01)), 6000))
    assert sum(counts) / len(counts) > ALARM * 0.75  # cut at 6,000, and 30 draws of it
