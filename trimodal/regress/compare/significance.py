"""Tests whether two sets of measurements differ by more than chance, with scipy's tests.

Rank tests, because latencies are skewed and have outliers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from trimodal.errors import OperatorError

Sample = Sequence[float]
# Up to so many measurements together scipy's exact test is quick; above it the normal curve is close.
_MOST_EXACT = 60


def require_scipy() -> Any:
    """scipy.stats, which takes a second to import. Raises: OperatorError when it is not installed."""
    try:
        from scipy import stats
    except ImportError:
        raise OperatorError("comparing runs needs scipy: pip install 'trimodal[bench]'") from None
    return stats


def mann_whitney(first: Sample, second: Sample) -> float:
    """Two-sided p of the Mann–Whitney test: could both have come from one distribution?

    Exact for up to 60 values in all, if no two are equal. 1 when either is empty.
    """
    both = [*first, *second]
    if not first or not second or len(set(both)) == 1:
        return 1.0
    exact = len(both) <= _MOST_EXACT and len(set(both)) == len(both)
    test = require_scipy().mannwhitneyu(first, second, method="exact" if exact else "asymptotic")
    return float(test.pvalue)


def fewer_successes(before: tuple[int, int], after: tuple[int, int]) -> float:
    """One-sided p of Fisher's exact test: that `after` has as few successes, or fewer, by chance.

    Args:
        before, after: (successes, of how many).
    """
    table = [[successes, of - successes] for successes, of in (after, before)]
    return float(require_scipy().fisher_exact(table, alternative="less").pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """Corrects p values for how many there are (Holm 1979): at most α are wrongly below α in all."""
    order = np.argsort(values)
    corrected = np.ones(len(values))
    steps = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(value) for value in corrected]


def ratio_interval(first: Sample, second: Sample, seed: int = 0) -> tuple[float, float, float]:
    """How many times the second is as large as the first: ratio of medians and its 95 % bootstrap interval.

    All values must be above 0, and there must be two on each side.

    Returns:
        (ratio, low, high). The interval is rough below some ten values a side.
    """

    def ratio(one: Any, other: Any, axis: int = -1) -> Any:
        return np.median(other, axis) / np.median(one, axis)

    interval = require_scipy().bootstrap(
        (first, second), ratio, n_resamples=2000, method="percentile", rng=seed
    ).confidence_interval  # fmt: skip
    return float(ratio(first, second)), float(interval.low), float(interval.high)


def least_p(n: int, m: int) -> float:
    """Returns the smallest p that `mann_whitney` can give for so many values, up to 60 in all."""
    return min(1.0, 2 / math.comb(n + m, n))
