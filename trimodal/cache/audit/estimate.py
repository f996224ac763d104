"""Estimates a rate from a sample of an endless stream, with bounds that hold whenever they are looked at.

Bounds are a confidence sequence: for a factor f > 0 and values x of [0, 1] with means μ, the product of
f^x / (1 + μ (f - 1)) is a non-negative supermartingale, so it stays below 1 / α for ever with probability
1 - α (Ville). A mixture over factors above 1 bounds the rate from below, one over factors below 1 from above
(Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Ann.
Statist. 49(2), 2021: sub-Bernoulli case, discrete mixture). As log is concave, what is bounded is the running
mean of the rates at the time of each sample, which may drift. Bets against one constant rate do not give
that, nor does a window of Clopper and Pearson that is looked at again and again.

What is forgotten: two sums run, the younger one half a window behind. The older one is told, and dropped when
it holds a window. The bounds hold at every look during the life of one sum with probability 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

WINDOW = 2048
"""Samples after which a sum is dropped: the bounds are of the last 1024 to 2048."""
CONFIDENCE = 0.95
_ABOVE = (1.1, 1.3, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_BELOW = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
_HALVINGS = 20
_NEARLY_MINUS_1 = -1 + 1e-15


class Bounds(NamedTuple):
    """Estimate of a rate with its lower and upper bound, each 0 to 1."""

    rate: float = 0.0
    lower: float = 0.0
    upper: float = 1.0


@dataclass
class _Sums:
    """What was sampled: `low` of the samples count for sure, `high` of them may count."""

    samples: int = 0
    low: int = 0
    high: int = 0

    def add(self, low: bool, high: bool) -> None:
        self.samples += 1
        self.low += low
        self.high += high


class Estimate:
    """Running estimate of a rate."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._older, self._younger = _Sums(), _Sums()

    def add(self, low: bool, high: bool) -> None:
        """Adds a sample that counts for sure (`low`), perhaps (`high` alone) or not."""
        if self._older.samples == self._window:
            self._older, self._younger = self._younger, _Sums()
        self._older.add(low, high)
        if self._older.samples > self._window // 2:
            self._younger.add(low, high)

    def bounds(self) -> Bounds:
        """The rate among samples that are clear, and bounds that take the unclear ones for either."""
        sums, alpha = self._older, (1 - CONFIDENCE) / 2
        if not sums.samples:
            return Bounds()
        least, most = sums.low / sums.samples, sums.high / sums.samples
        lower = _border(lambda rate: _refuted(_ABOVE, rate, sums.low, sums.samples, alpha), least, 0.0)
        upper = _border(lambda rate: _refuted(_BELOW, rate, sums.high, sums.samples, alpha), most, 1.0)
        clear = sums.samples - (sums.high - sums.low)
        rate = sums.low / clear if clear else 0.0
        return Bounds(min(upper, max(lower, rate)), lower, upper)


def _refuted(factors: tuple[float, ...], rate: float, counted: int, samples: int, alpha: float) -> bool:
    """Whether the mixture over `factors` reaches 1 / `alpha` at `rate`."""
    terms = [
        (counted * math.log(f) if f else (-math.inf if counted else 0.0))
        - samples * math.log1p(max(rate * (f - 1), _NEARLY_MINUS_1))
        for f in factors
    ]
    most = max(terms)
    return most + math.log(sum(math.exp(term - most) for term in terms)) >= math.log(len(factors) / alpha)


def _border(refuted: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where rates begin to be refuted between one that is not and the end of the scale."""
    if not refuted(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if refuted(middle) else (middle, outside)
    return outside
