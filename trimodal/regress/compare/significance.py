"""Tests whether two sets of measurements differ by more than chance: rank tests, correction, bootstrap.

Rank tests, because latencies are skewed and have outliers. scipy's Mann-Whitney test is exact only without
ties, which rounded times and counts have; the tests compare with scipy where it is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Sample = Sequence[float]
# Up to so many measurements together all ways to divide them are counted; above it the normal curve is close.
_MOST_EXACT = 60
_RESAMPLES = 2000


def mann_whitney(first: Sample, second: Sample) -> float:
    """Two-sided p of the Mann–Whitney test (1947): could both have come from one distribution?

    Exact, also with ties, for up to 60 values in all. 1 when either is empty.
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 1.0
    ranks = _midranks(first, second)
    if n + m <= _MOST_EXACT:
        return _exact(ranks, n)
    distance = ranks[:n].sum() / 2 - n * (n + m + 1) / 2
    # Of a sum of n ranks drawn without replacement, when there is no difference: ties are in the ranks' own.
    variance = n * m / (n + m - 1) * (ranks / 2).var()
    if variance <= 0:
        return 1.0
    # Half a rank nearer: the sum of ranks is a whole number, the normal curve is not.
    return math.erfc(max(0.0, abs(distance) - 0.5) / math.sqrt(2 * variance))


def fewer_successes(before: tuple[int, int], after: tuple[int, int]) -> float:
    """One-sided p of Fisher's exact test: that `after` has as few successes, or fewer, by chance.

    Args:
        before, after: (successes, of how many).
    """
    (won, of), (now, now_of) = before, after
    wins, total = won + now, of + now_of
    ways = math.comb(total, now_of)
    least = max(0, wins - of)
    return sum(math.comb(wins, k) * math.comb(total - wins, now_of - k) for k in range(least, now + 1)) / ways


def holm(values: Sequence[float]) -> list[float]:
    """Corrects p values for how many there are (Holm 1979): at most α are wrongly below α in all."""
    order = np.argsort(values)
    corrected = np.ones(len(values))
    steps = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(value) for value in corrected]


def ratio_interval(first: Sample, second: Sample, seed: int = 0) -> tuple[float, float, float]:
    """How many times the second is as large as the first: ratio of medians and its 95 % bootstrap interval.

    All values must be above 0.

    Returns:
        (ratio, low, high). The interval is rough below some ten values a side.
    """
    generator = np.random.default_rng(seed)
    ratio = float(np.median(second) / np.median(first))
    low, high = np.percentile(_medians(second, generator) / _medians(first, generator), (2.5, 97.5))
    return ratio, float(low), float(high)


def least_p(n: int, m: int) -> float:
    """Returns the smallest p that `mann_whitney` can give for so many values."""
    return min(1.0, 2 / math.comb(n + m, n))


def _medians(values: Sample, generator: np.random.Generator) -> NDArray[np.float64]:
    drawn = generator.choice(np.asarray(values, np.float64), (_RESAMPLES, len(values)))
    medians: NDArray[np.float64] = np.median(drawn, axis=1)
    return medians


def _midranks(first: Sample, second: Sample) -> NDArray[np.int64]:
    """Twice the rank of each value among all, ties sharing the middle of their ranks; first, then second."""
    _, place, counts = np.unique(
        np.asarray([*first, *second], np.float64), return_inverse=True, return_counts=True
    )
    ends = np.cumsum(counts)
    doubled: NDArray[np.int64] = (2 * ends - counts + 1)[place]
    return doubled


def _exact(ranks: NDArray[np.int64], n: int) -> float:
    most = int(ranks.sum())
    ways = np.zeros((n + 1, most + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : most + 1 - rank]
    expected = n * (len(ranks) + 1)  # of doubled ranks
    distance = abs(int(ranks[:n].sum()) - expected)
    sums = np.arange(most + 1)
    return float(min(1.0, ways[n][abs(sums - expected) >= distance].sum() / ways[n].sum()))
