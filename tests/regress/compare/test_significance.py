"""Figures worked out by hand, and what scipy is asked for."""

import sys

import numpy as np
import pytest

from trimodal.errors import OperatorError
from trimodal.regress.compare.significance import (
    fewer_successes,
    holm,
    least_p,
    mann_whitney,
    ratio_interval,
)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1, 2, 3], [4, 5, 6], least_p(3, 3)),
        ([1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11, 12, 13], least_p(4, 9)),
        (list(range(30)), list(range(30, 60)), least_p(30, 30)),
        ([1, 3, 5], [2, 4, 6], 0.7),
        ([2.0] * 5, [2.0] * 9, 1),
        ([1.0] * 50, [1.0] * 50, 1),
        ([], [1.0], 1),
    ],
)
def test_mann_whitney(first, second, p):
    assert mann_whitney(first, second) == pytest.approx(p)
    assert mann_whitney(second, first) == pytest.approx(p)


def test_ties_are_corrected_for():
    first, second = [1, 1, 2, 3, 1, 2], [2, 3, 3, 4, 4, 3]
    assert 0.005 < mann_whitney(first, second) < 0.05
    assert mann_whitney(first, first) == pytest.approx(1, abs=0.1)


def test_false_alarms_are_at_most_as_many_as_promised():
    samples = np.random.default_rng(5).lognormal(size=(300, 2, 8)).tolist()
    assert 0.02 < np.mean([mann_whitney(*pair) < 0.05 for pair in samples]) < 0.07


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [((10, 11), (0, 3), 4 / 364), ((2, 2), (0, 2), 1 / 6), ((0, 4), (0, 4), 1), ((1, 8), (2, 5), 0.965)],
)
def test_fewer_successes_is_fishers_test(before, after, p):
    assert fewer_successes(before, after) == pytest.approx(p, abs=1e-3)


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
    assert ratio_interval([3.0] * 3, [6.0] * 3) == pytest.approx((2, 2, 2))


def test_without_scipy_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(OperatorError, match=r"needs scipy: pip install 'trimodal\[bench\]'"):
        mann_whitney([1, 2], [3, 4])
