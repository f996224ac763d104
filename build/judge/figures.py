"""Measures a judge by the probabilities that it gives to labelled pairs, and calibrates its threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from judge.pairs import HARD, Example, clopper_pearson
from scipy.stats import mannwhitneyu

from trimodal.cache.calibration import Calibration, Point
from trimodal.errors import ArtefactError

Floats = npt.NDArray[np.float64]
FALSE_SHARE = 0.01  # of near-identical pairs, at which found rewordings are told
FAR = ("crossed", "unrelated")  # kinds of questions that are about different matters
_POINTS = 60  # at most, of a calibration's curve


@dataclass(frozen=True)
class Scored:
    """Pairs with the probability of `same`, as the cache sees it."""

    examples: Sequence[Example]
    scores: Floats

    def of(self, same: bool) -> Floats:
        """Scores of the pairs with this label."""
        return self.scores[[each.same == same for each in self.examples]]

    def differing(self) -> Floats:
        """Scores of what must not pass: all that differ but for far ones, which no cache asks about."""
        return self.scores[[not each.same and each.kind not in FAR for each in self.examples]]

    def of_kind(self, kind: str) -> Floats:
        """Scores of the pairs of a kind."""
        return self.scores[[each.kind == kind for each in self.examples]]

    def kinds(self) -> list[str]:
        """Kinds that are there: of difference first."""
        first = {kind: at for at, kind in enumerate((*HARD, *FAR))}
        return sorted({each.kind for each in self.examples}, key=lambda kind: (first.get(kind, 99), kind))


def summary(scored: Scored) -> dict[str, Any]:
    """Area under the ROC curve, and rewordings found where 1 % of near-identical pairs pass."""
    same, different = scored.of(True), scored.differing()
    least = threshold_at(different, FALSE_SHARE)
    return {
        "pairs": len(scored.examples),
        "auc": round(area(same, scored.of(False)), 5),
        "found_at_1_percent": round(float((same >= least).mean()), 4),
        "accuracy": round(
            float(np.mean((scored.scores >= 0.5) == [each.same for each in scored.examples])), 4
        ),
    }


def area(same: Floats, different: Floats) -> float:
    """How often a pair that is the same gets more than one that differs; a tie counts half."""
    return float(mannwhitneyu(same, different).statistic / (len(same) * len(different)))


def threshold_at(different: Floats, share: float) -> float:
    """The lowest score at which at most this share of those that differ pass (score ≥ threshold)."""
    allowed = int(share * len(different))
    highest = np.sort(different)[::-1]
    return float(np.nextafter(highest[allowed], 2)) if allowed < len(highest) else 0.0


def calibrate(
    parts: Sequence[Scored], checkpoint: str, source: str, languages: Sequence[str] = ("en",)
) -> Calibration:
    """The calibration of a judge: for thresholds that rise, found rewordings and false hits with a bound.

    False hits are counted among near-identical pairs with another answer, the bound has 95 % confidence. Of
    several parts the worst bound counts and the least share of rewordings.

    Raises:
        ArtefactError: a part lacks rewordings, or near-identical pairs.
    """
    sides = [(part.of(True), part.differing()) for part in parts]
    if not all(len(same) and len(different) for same, different in sides):
        raise ArtefactError(f"{source}: rewordings and near-identical pairs with another answer are needed")
    # A threshold just above each of the worst false hits, up to one that none passes.
    scores = np.concatenate([np.sort(different)[-max(1, len(different) // 20) :] for _, different in sides])
    worst = np.sort(scores)[::-1]
    chosen = worst[np.unique(np.geomspace(1, len(worst), _POINTS).astype(int)) - 1]
    curve = []
    for threshold in sorted({min(1.0, _above(float(score))) for score in chosen}):
        passed = [(int((different >= threshold).sum()), len(different)) for _, different in sides]
        upper, false = max((clopper_pearson(count, of)[1], count) for count, of in passed)
        curve.append(
            Point(
                threshold=threshold,
                hit_rate=round(min(float((same >= threshold).mean()) for same, _ in sides), 6),
                false_hits=false,
                false_hit_upper=min(1.0, math.ceil(upper * 1e6) / 1e6),  # never too low
            )
        )
    return Calibration(
        checkpoint_sha256=checkpoint,
        reading="shorter_first",
        languages=tuple(languages),
        pairs=source,
        paraphrases=sum(len(same) for same, _ in sides),
        hard_negatives=sum(len(different) for _, different in sides),
        curve=tuple(curve),
    )


def _above(score: float) -> float:
    return math.ceil(score * 1e6 + 1e-3) / 1e6
