"""Counts hits and bounds their rates over measured pairs: by class, with and without the guard, by threshold.

The bounds are those of Clopper and Pearson (1934): exact for a binomial, never too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimodal.bench.cache.pairs import HARD, Measured
from trimodal.cache.calibration import Calibration, Point
from trimodal.errors import OperatorError

CONFIDENCE = 0.95
_STEP = 0.01


@dataclass(frozen=True)
class Share:
    """`hits` of `pairs`, and its rate with its bounds."""

    pairs: int
    hits: int

    @property
    def rate(self) -> float:
        """0 when there are no pairs."""
        return self.hits / self.pairs if self.pairs else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the rate, together with 95 % confidence."""
        return clopper_pearson(self.hits, self.pairs)


def share(measured: Iterable[Measured], threshold: float, *, guarded: bool) -> Share:
    """How many of these would be a hit: near enough, and let through by the guard."""
    every = list(measured)
    return Share(len(every), sum(one.cosine >= threshold and not (guarded and one.reason) for one in every))


def hard(measured: Iterable[Measured]) -> list[Measured]:
    """Returns the near-identical questions with another answer."""
    return [one for one in measured if one.pair.kind in HARD]


def calibrate(measured: Sequence[Measured], checkpoint: str, source: str) -> Calibration:
    """Makes the curve over thresholds, in steps of 0.01, from where 98 % of passing paraphrases lie above.

    Raises:
        ValueError: there are no paraphrases, or no near-identical pairs.
    """
    paraphrases = [one for one in measured if one.pair.kind == "paraphrase"]
    negatives = hard(measured)
    if not paraphrases or not negatives:
        raise ValueError("a calibration needs paraphrases and near-identical pairs with another answer")
    # Where a lower threshold gains but the odd paraphrase, it gains mostly risk.
    passing = sorted(one.cosine for one in paraphrases if not one.reason) or [1.0]
    farthest = passing[len(passing) // 50]
    curve = []
    for step in range(math.floor(min(farthest, 1.0) / _STEP), round(1 / _STEP) + 1):
        threshold = round(step * _STEP, 2)
        false = share(negatives, threshold, guarded=True)
        curve.append(
            Point(
                threshold=threshold,
                hit_rate=round(share(paraphrases, threshold, guarded=True).rate, 6),
                false_hits=false.hits,
                false_hit_upper=min(1.0, math.ceil(false.bounds[1] * 1e6) / 1e6),  # never too low
            )
        )
    return Calibration(
        checkpoint_sha256=checkpoint,
        pairs=source,
        paraphrases=len(paraphrases),
        hard_negatives=len(negatives),
        curve=tuple(curve),
    )


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of a rate of which `hits` of `trials` were seen; (0, 1) when there were none.

    Raises:
        ValueError: not 0 ≤ hits ≤ trials, or a confidence outside 0…1.
        OperatorError: scipy is not installed.
    """
    if not 0 <= hits <= trials or not 0 < confidence < 1:
        raise ValueError(f"{hits} of {trials} with confidence {confidence} is no share")
    if not trials:
        return 0.0, 1.0
    try:
        from scipy.stats import binomtest
    except ImportError:
        raise OperatorError("bounds of rates need scipy: pip install 'trimodal[bench]'") from None
    bounds = binomtest(hits, trials).proportion_ci(confidence)  # "exact", its default, is this
    return float(bounds.low), float(bounds.high)
