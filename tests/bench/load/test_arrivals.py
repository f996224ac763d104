from __future__ import annotations

from itertools import islice, pairwise
from statistics import mean, pstdev

import pytest

from trimodal.bench.load.arrivals import constant, poisson


def gaps(times: list[float]) -> list[float]:
    return [later - at for at, later in pairwise(times)]


def test_a_constant_rate_has_even_gaps() -> None:
    assert list(islice(constant(4.0), 5)) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_poisson_arrivals_have_exponential_gaps_and_come_again_with_the_seed() -> None:
    times = list(islice(poisson(50.0, seed=3), 20_000))
    assert mean(gaps(times)) == pytest.approx(1 / 50, rel=0.03)
    assert pstdev(gaps(times)) == pytest.approx(1 / 50, rel=0.05)
    assert times[:9] == list(islice(poisson(50.0, seed=3), 9)) != list(islice(poisson(50.0, seed=4), 9))
