"""Decides which of the nearest stored answers serves a question: by its words alone, else by the judge.

A question that is the same after `normalise` is a hit without the judge. Of the others the nearest goes to it
first, and the next one only when that is refused: most hits are the nearest, and judging two together costs
each of them twice the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from trimodal.cache.bounded_calls import Bypassed, Guarded, TimedCalls
from trimodal.cache.calibration import Calibration
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.values import Entry, Hit, Question, Same
from trimodal.errors import InvalidArgument
from trimodal.judge.language import is_foreign
from trimodal.judge.normaliser import normalise
from trimodal.judge.unseen import differ_unseen

LEAST_SIMILARITY = 0.6
"""Cosine below which the judge is not asked. With MiniLM 2 of 100 rewordings are farther, and less than 1 of
100 unrelated questions is nearer (tune_b)."""
JUDGED = 2
"""At most so many of the nearest are judged, one after the other."""

LEAST_BUDGET_S = 0.005
"""With less time left the next one is not judged: a call that is given up counts against the judge."""


def known_score(question: str, stored: str) -> float | None:
    """1 where both are the same after `normalise`, 0 where they differ in what the judge does not see.

    None: the judge is to say.
    """
    if differ_unseen(question, stored):
        return 0.0
    return 1.0 if normalise(question) == normalise(stored) else None


class Decider:
    """Called from several threads at once.

    Args:
        calibration: which languages the judge reads, and what holds for others.
        threshold: P(same) that a hit needs.
        callers: how many threads may call the judge at once.
        budget_s: how long the judge may take for one question.
    """

    def __init__(
        self,
        same: Same,
        calibration: Calibration,
        threshold: float,
        metrics: CacheMetrics,
        *,
        callers: int,
        budget_s: float,
    ) -> None:
        self._same, self._calibration = same, calibration
        self._threshold, self._metrics = threshold, metrics
        self._guarded = Guarded("the cache's judge", callers)
        self._budget_s = budget_s

    def decide(
        self, question: Question, near: Sequence[tuple[float, Entry]], calls: TimedCalls
    ) -> Hit | None:
        """The answer among the usable ones of `near` that serves the question. Raises Bypassed."""
        candidates: list[tuple[float, Entry]] = []
        for similarity, entry in near:
            if not similarity >= LEAST_SIMILARITY:
                self._metrics.refused("threshold")
            elif (known := known_score(question.text, entry.text)) == 1:
                return _hit(entry, similarity)
            elif known == 0:
                self._metrics.refused("case")
            else:
                candidates.append((similarity, entry))
        until = time.perf_counter() + self._budget_s
        for place, (similarity, entry) in enumerate(candidates[:JUDGED]):
            left = until - time.perf_counter()
            if place and left < LEAST_BUDGET_S:
                break
            score = self._score(question.text, entry.text, calls, left)
            if score is None:
                break
            if self._passes(question, entry, score):
                return _hit(entry, similarity)
        return None

    def _passes(self, question: Question, entry: Entry, score: float) -> bool:
        foreign = self._foreign(question.text) or self._foreign(entry.text)
        needed = max(self._threshold, self._calibration.foreign_threshold if foreign else 0.0)
        if score < needed:
            self._metrics.refused("language" if score >= self._threshold else "judge")
        return score >= needed

    def _score(self, question: str, stored: str, calls: TimedCalls, budget_s: float) -> float | None:
        """P(same), 0 for what is no probability; None: the judge cannot read the question."""
        try:
            (score,) = calls.call(
                self._guarded, lambda: self._same([(question, stored)]), budget_s, (InvalidArgument,)
            )
        except Bypassed as missed:
            if not isinstance(missed.cause, InvalidArgument):
                raise
            self._metrics.refused("length")
            return None
        return score if 0 <= score <= 1 else 0.0

    def _foreign(self, text: str) -> bool:
        return is_foreign(text, self._calibration.languages)


def _hit(entry: Entry, similarity: float) -> Hit:
    return Hit(entry, "semantic", min(1.0, float(similarity)))
