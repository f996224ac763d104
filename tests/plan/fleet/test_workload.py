"""Arrivals that are made: rates, bursts, lengths as published, shared beginnings."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from statistics import fmean, median, pvariance

import pytest

from tests.plan.fleet.given import Exactly
from trimodal.bench.load.lengths import parse_lengths
from trimodal.errors import SettingsError
from trimodal.plan.fleet.workload import LENGTHS, Prefixes, generate


def times(**fields: object) -> list[float]:
    values = {"rate": 50, "seconds": 400, "prompt": Exactly(1), "output": Exactly(1)}
    return [one.at for one in generate(**{**values, **fields})]  # type: ignore[arg-type]


def spread(arrivals: list[float]) -> float:
    """Variance of the gaps over their squared mean: 1 for a Poisson process."""
    gaps = [later - at for at, later in pairwise(arrivals)]
    return pvariance(gaps) / fmean(gaps) ** 2


def test_poisson_and_bursts() -> None:
    assert len(times()) == pytest.approx(20_000, rel=0.03)
    assert spread(times()) == pytest.approx(1.0, rel=0.06)
    bursts = times(burstiness=0.25)
    assert len(bursts) == pytest.approx(20_000, rel=0.05)
    assert spread(bursts) == pytest.approx(4.0, rel=0.12)


def test_the_same_seed_makes_the_same() -> None:
    made = [
        generate(50, 20, Exactly(1), Exactly(1), prefixes=Prefixes(5, 10, 0.5), seed=seed)
        for seed in (3, 3, 4)
    ]
    assert made[0] == made[1] != made[2]


def test_shared_beginnings_follow_zipf() -> None:
    made = generate(500, 40, Exactly(30), Exactly(1), prefixes=Prefixes(10, 100, 0.6, 1.0))
    shared = [one for one in made if one.prefix is not None]
    assert len(shared) / len(made) == pytest.approx(0.6, abs=0.02)
    assert all((one.prompt, one.shared) == (130, 100) for one in shared)
    counts = Counter(one.prefix for one in shared)
    assert counts[0] / counts[4] == pytest.approx(5.0, rel=0.15)


@pytest.mark.parametrize(
    ("name", "medians", "means"),
    [
        ("azure-conversation", (1020, 129), (1155, 211)),
        ("azure-code", (1500, 13), (2048, 28)),
    ],
)
def test_lengths_are_as_published(
    name: str, medians: tuple[float, float], means: tuple[float, float]
) -> None:
    rng = random.Random(1)
    for index, text in enumerate(LENGTHS[name]):
        drawn = [parse_lengths(text, "it").draw(rng) for _ in range(60_000)]
        assert fmean(drawn) == pytest.approx(means[index], rel=0.05)
        assert median(drawn) == pytest.approx(medians[index], rel=0.03)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"rate": 0}, "--rate 0: above 0"),
        ({"seconds": -1}, "--seconds -1"),
        ({"burstiness": 0}, "--burstiness 0"),
        ({"rate": 1e5, "seconds": 1e6}, "10000000 requests at most"),
        ({"rate": float("nan")}, "--rate nan"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        times(**fields)
    with pytest.raises(SettingsError, match="SHARE 0 to 1"):
        Prefixes(5, 10, 2.0)
