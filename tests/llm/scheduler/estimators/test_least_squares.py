import random

import pytest

from trimodal.llm.scheduler.estimators.least_squares import LeastSquares


def observe(line: LeastSquares, true: tuple[float, float, float], count: int, seed: int = 0) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        x = (1.0, draw.randint(10, 2000), draw.randint(0, 16))
        y = sum(weight * value for weight, value in zip(true, x, strict=True))
        line.learn(x, y * draw.uniform(0.95, 1.05))


def test_finds_the_weights_behind_noisy_observations() -> None:
    line = LeastSquares(3, 0.97)
    observe(line, (0.02, 0.0001, 0.001), 200)
    assert line.predict((1.0, 100, 0)) == pytest.approx(0.02 + 0.01, rel=0.1)
    assert line.predict((1.0, 1500, 16)) == pytest.approx(0.02 + 0.15 + 0.016, rel=0.1)


def test_weights_are_never_negative() -> None:
    line = LeastSquares(2, 0.97)
    for count in range(1, 50):
        line.learn((1.0, count), 1.0 / count)  # falls with x: the best free fit has a negative slope
        assert min(line.weights) >= 0
    assert line.weights[1] == 0


def test_follows_an_engine_that_became_three_times_slower() -> None:
    line = LeastSquares(3, 0.97)
    observe(line, (0.02, 0.0001, 0.001), 200)
    observe(line, (0.06, 0.0003, 0.003), 150, seed=1)
    assert line.predict((1.0, 1000, 8)) == pytest.approx(0.06 + 0.3 + 0.024, rel=0.15)


def test_a_slow_spell_is_forgotten_within_a_few_fast_observations() -> None:
    line = LeastSquares(3, 0.97)
    observe(line, (2.0, 0.01, 0.1), 20)
    observe(line, (0.02, 0.0001, 0.001), 40, seed=1)
    assert line.predict((1.0, 1000, 8)) < 0.3  # 0.128 when fast, 12.8 when slow


def test_one_wild_observation_moves_the_fit_little() -> None:
    line = LeastSquares(3, 0.97)
    observe(line, (0.02, 0.0001, 0.001), 200)
    before = line.predict((1.0, 1000, 8))
    line.learn((1.0, 1000, 8), 60.0)
    assert line.predict((1.0, 1000, 8)) == pytest.approx(before, rel=0.15)


def test_what_recent_observations_cannot_tell_apart_stays_as_it_was() -> None:
    line = LeastSquares(3, 0.97)
    observe(line, (0.02, 0.0001, 0.001), 200)
    slope = line.weights[1]
    for _ in range(500):
        line.learn((1.0, 100, 4), 0.034)
    assert line.weights[1] == pytest.approx(slope, rel=0.1)


@pytest.mark.parametrize("y", [0.0, 1e-12, 1e9])
def test_extreme_times_leave_finite_weights(y: float) -> None:
    line = LeastSquares(3, 0.97)
    for _ in range(30):
        line.learn((1.0, 100, 4), y)
    assert line.predict((1.0, 100, 4)) == pytest.approx(y, rel=1e-3, abs=1e-9)
