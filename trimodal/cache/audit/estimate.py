"""Estimates a rate from a sample of an endless stream, with bounds that hold whenever they are looked at.

Bounds are a confidence sequence: for a factor f > 0 and values x of [0, 1] with means μ, the product of
f^x / (1 + μ (f - 1)) is a non-negative supermartingale, so it stays below 1 / α for ever with probability
1 - α (Ville). A mixture over factors above 1 bounds the rate from below, one over factors below 1 from above
(Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Ann.
Statist. 49(2), 2021: sub-Bernoulli case, discrete mixture). As log is concave, what is bounded is the running
mean of the rates at the time of each sample, which may drift. Bets against one constant rate do not give
that, nor does a window of Clopper and Pearson that is looked at again and again. Weights w of (0, 1] keep it
a supermartingale: E[f^(wx)] is at most E[f^x]^w.

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
ALARM = 2000.0
"""Samples between two false alarms of a `ShiftDetector`, in the mean and at the least."""
_ABOVE = (1.1, 1.3, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_BELOW = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
_HALVINGS = 20
_NEARLY_MINUS_1 = -1 + 1e-15


class Bounds(NamedTuple):
    """Estimate of a rate with its lower and upper bound, each 0 to 1, and of how many samples it is."""

    rate: float = 0.0
    lower: float = 0.0
    upper: float = 1.0
    samples: int = 0


@dataclass
class Sums:
    """What was sampled: `weight` of all samples, and of those that count.

    Attributes:
        low, high: weight of those that count for sure, and of those that may count.
    """

    samples: int = 0
    weight: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def add(self, low: float, high: float, weight: float) -> None:
        """Adds a sample; `weight` is above 0 and at most 1."""
        self.samples += 1
        self.weight += weight
        self.low += weight * low
        self.high += weight * high

    def lower(self, alpha: float) -> float:
        """Lower bound of the rate, wrong at some time with probability `alpha` at most."""
        least = min(1.0, self.low / self.weight) if self.weight else 0.0
        return _border(lambda rate: _refuted(_ABOVE, rate, self.low, self.weight, alpha), least, 0.0)

    def upper(self, alpha: float) -> float:
        """Upper bound of the rate, wrong at some time with probability `alpha` at most."""
        most = min(1.0, self.high / self.weight) if self.weight else 1.0
        return _border(lambda rate: _refuted(_BELOW, rate, self.high, self.weight, alpha), most, 1.0)

    def below(self, rate: float, alpha: float) -> bool:
        """Whether `upper` is at most `rate`, without computing it."""
        if self.high >= rate * self.weight or self.weight * -math.log1p(-rate) < -math.log(alpha):
            return False  # The estimate itself is above, or too little is known even if all of it agreed.
        return _refuted(_BELOW, rate, self.high, self.weight, alpha)


class Estimate:
    """Running estimate of a rate.

    Samples have inverse-probability weights, scaled so that the rarest kind has 1: who was drawn with the
    probability p has least / p, `least` being the smallest of all.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._older, self._younger = Sums(), Sums()

    def add(self, low: bool, high: bool, weight: float = 1.0) -> None:
        """Adds a sample that counts for sure (`low`), perhaps (`high` alone) or not."""
        if self._older.samples == self._window:
            self._older, self._younger = self._younger, Sums()
        self._older.add(low, high, weight)
        if self._older.samples > self._window // 2:
            self._younger.add(low, high, weight)

    def below(self, rate: float, alpha: float) -> bool:
        """Whether the rate is at most `rate`; wrong with probability `alpha` at most."""
        return self._older.below(rate, alpha)

    def bounds(self) -> Bounds:
        """The rate among samples that are clear, and bounds that take the unclear ones for either."""
        sums, alpha = self._older, (1 - CONFIDENCE) / 2
        clear = sums.weight - (sums.high - sums.low)
        lower, upper = sums.lower(alpha), sums.upper(alpha)
        rate = sums.low / clear if clear > 0 else 0.0
        return Bounds(min(upper, max(lower, rate)), lower, upper, sums.samples)


class ShiftDetector:
    """Tells when a rate has risen above `most`, however long it kept to it before.

    Sums over every moment at which the rise may have begun (Shin, Ramdas and Rinaldo, "E-detectors: a
    nonparametric framework for sequential change detection", 2024: of Shiryaev and Roberts' kind). While the
    rate keeps to `most`, there are at least `ALARM` samples to an alarm in the mean.
    """

    def __init__(self, most: float) -> None:
        self._growth = [(1 / (1 + most * (f - 1)), f / (1 + most * (f - 1))) for f in _ABOVE]
        self._evidence = [0.0] * len(_ABOVE)

    def add(self, counts: bool) -> bool:
        """Adds a sample; True: the rate is above `most`."""
        # Bounded, or samples that go on counting would make it infinite: no alarm would ever be over.
        self._evidence = [
            min(2 * ALARM * len(_ABOVE), (evidence + 1) * growth[counts])
            for evidence, growth in zip(self._evidence, self._growth, strict=True)
        ]
        return sum(self._evidence) / len(self._evidence) >= ALARM


def _refuted(factors: tuple[float, ...], rate: float, counted: float, weight: float, alpha: float) -> bool:
    """Whether the mixture over `factors` reaches 1 / `alpha` at `rate`."""
    terms = [
        (counted * math.log(f) if f else (-math.inf if counted else 0.0))
        - weight * math.log1p(max(rate * (f - 1), _NEARLY_MINUS_1))
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
