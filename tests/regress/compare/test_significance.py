"""Held against scipy, which is there where the builds are, and against figures worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimodal.regress.compare.significance import (
    fewer_successes,
    holm,
    least_p,
    mann_whitney,
    ratio_interval,
)


# Imported here, not with the file: every worker collects every file.
@pytest.fixture(scope="module")
def stats():
    return pytest.importorskip("scipy.stats")


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 9), (10, 10), (30, 30), (40, 50)])
def test_mann_whitney_is_scipys(stats, n, m):
    generator = np.random.default_rng(n)
    first, second = generator.normal(size=n), generator.normal(0.6, size=m)
    method = "exact" if n + m <= 60 else "asymptotic"
    expected = stats.mannwhitneyu(first, second, method=method).pvalue
    assert mann_whitney(first.tolist(), second.tolist()) == pytest.approx(expected, rel=1e-9)


def test_mann_whitney_with_ties(stats):
    first, second = [1, 1, 2, 3], [2, 3, 3, 4, 4]
    ranks = stats.rankdata(first + second)
    ways = [abs(sum(some) - 20) for some in itertools.combinations(ranks, 4)]
    assert mann_whitney(first, second) == np.mean(np.array(ways) >= abs(sum(ranks[:4]) - 20))
    many = np.random.default_rng(1).integers(0, 4, 80).tolist(), [0, 1, 2, 2, 3, 3, 3] * 6
    expected = stats.mannwhitneyu(*many, method="asymptotic").pvalue
    assert mann_whitney(*many) == pytest.approx(expected)


def test_extremes():
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1) == pytest.approx(least_p(3, 3))
    assert mann_whitney([2.0] * 5, [2.0] * 9) == 1
    assert mann_whitney([1.0] * 50, [1.0] * 50) == 1
    assert mann_whitney([], [1.0]) == 1


@settings(max_examples=60)
@given(*[st.lists(st.integers(1, 12), min_size=1, max_size=8)] * 2)
def test_mann_whitney_is_symmetric_and_knows_ranks_only(first, second):
    p = mann_whitney(first, second)
    assert 0 < p <= 1
    assert mann_whitney(second, first) == pytest.approx(p)
    assert mann_whitney([math.exp(x) for x in first], [math.exp(x) for x in second]) == pytest.approx(p)


def test_false_alarms_are_at_most_as_many_as_promised():
    samples = np.random.default_rng(5).lognormal(size=(1000, 2, 8)).tolist()
    assert 0.02 < np.mean([mann_whitney(*pair) < 0.05 for pair in samples]) < 0.06


@pytest.mark.parametrize(
    ("before", "after"), [((9, 10), (4, 10)), ((10, 11), (0, 3)), ((1, 8), (2, 5)), ((0, 4), (0, 4))]
)
def test_fewer_successes_is_fishers_test(stats, before, after):
    table = [[after[0], after[1] - after[0]], [before[0], before[1] - before[0]]]
    expected = stats.fisher_exact(table, alternative="less").pvalue
    assert fewer_successes(before, after) == pytest.approx(expected)


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_interval_of_a_ratio():
    generator = np.random.default_rng(0)
    first = generator.lognormal(0, 0.1, 200).tolist()
    second = (2 * generator.lognormal(0, 0.1, 200)).tolist()
    ratio, low, high = ratio_interval(first, second)
    assert ratio == pytest.approx(np.median(second) / np.median(first))
    assert 1.9 < low < ratio < high < 2.1
    assert ratio_interval(first, second) == (ratio, low, high)  # seeded
    assert ratio_interval([3.0], [6.0]) == pytest.approx((2, 2, 2))
