"""Figures worked out by hand, and what scipy is asked for."""

import math
import sys

import pytest

from trimodal.errors import OperatorError
from trimodal.regress.significance import fewer_successes, holm, mann_whitney


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / math.comb(6, 3)),
        ([1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11, 12, 13], 2 / math.comb(13, 4)),
        (list(range(30)), list(range(30, 60)), 2 / math.comb(60, 30)),
        ([1, 3, 5], [2, 4, 6], 0.7),
        ([2.0] * 5, [2.0] * 9, 1),
        ([1.0] * 50, [1.0] * 50, 1),
    ],
)
def test_mann_whitney(first, second, p):
    assert mann_whitney(first, second) == pytest.approx(p)
    assert mann_whitney(second, first) == pytest.approx(p)


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


def test_without_scipy_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(OperatorError, match=r"needs scipy: pip install 'trimodal\[bench\]'"):
        mann_whitney([1, 2], [3, 4])
