"""Decides which of the nearest stored answers serves a question: by its words alone, else by the judge.

A question that is the same after `normalise` is a hit without the judge. Of the others the nearest goes to it
first, and the next one only when that is refused: most hits are the nearest, and judging two together costs
each of them twice the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.cache.bounded_calls import Bypassed, Guarded, TimedCalls
from trimodal.cache.calibration import Calibration
from trimodal.cache.judge import Judge
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.values import CacheScope, Entry, Question
from trimodal.errors import InvalidArgument
from trimodal.judge.language import is_foreign
from trimodal.judge.normaliser import normalise
from trimodal.judge.unseen import differ_unseen

LEAST_SIMILARITY = 0.6
"""Cosine below which the judge is not asked. With MiniLM 2 of 100 rewordings are farther, and less than 1 of
100 unrelated questions is nearer (tune_b)."""
JUDGED = 2
"""At most so many of the nearest are judged, one after the other, each in both directions."""

LEAST_BUDGET_S = 0.005
"""With less time left the next one is not judged: a call that is given up counts against the judge."""


@dataclass(frozen=True)
class Decision:
    """What was decided about one question, for who watches it.

    Attributes:
        question, stored: as they were asked.
        score: P(same) in the less likely direction; 1 where both are the same after `normalise`.
        hit: whether `entry` is the answer; otherwise it is the likeliest of those that were refused.
        similarity: the cosine of both questions.
    """

    scope: CacheScope
    question: str
    stored: str
    score: float
    hit: bool
    entry: Entry
    similarity: float = 1.0


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
        judge: Judge,
        calibration: Calibration,
        threshold: float,
        metrics: CacheMetrics,
        *,
        callers: int,
        budget_s: float,
    ) -> None:
        self._judge, self._calibration = judge, calibration
        self._threshold, self._metrics = threshold, metrics
        self._guarded = Guarded("the cache's judge", callers)
        self._budget_s = budget_s

    def decide(
        self, question: Question, near: Sequence[tuple[float, Entry]], calls: TimedCalls
    ) -> Decision | None:
        """The decision on the usable answers of `near`; None: nothing came near. Raises Bypassed."""
        candidates: list[tuple[float, Entry]] = []
        for similarity, entry in near:
            if not similarity >= LEAST_SIMILARITY:
                self._metrics.refused("threshold")
            elif (known := known_score(question.text, entry.text)) == 1:
                return self._decision(question, entry, 1.0, similarity, hit=True)
            elif known == 0:
                self._metrics.refused("case")
            else:
                candidates.append((similarity, entry))
        refused: list[Decision] = []
        until = time.perf_counter() + self._budget_s
        for similarity, entry in candidates[:JUDGED]:
            left = until - time.perf_counter()
            if refused and left < LEAST_BUDGET_S:
                break
            score = self._score(question.text, entry.text, calls, left)
            if score is None:
                break
            decision = self._judged(question, entry, score, similarity)
            if decision.hit:
                return decision
            refused.append(decision)
        return max(refused, key=lambda one: one.score, default=None)

    def _judged(self, question: Question, entry: Entry, score: float, similarity: float) -> Decision:
        foreign = self._foreign(question.text) or self._foreign(entry.text)
        needed = max(self._threshold, self._calibration.foreign_threshold if foreign else 0.0)
        hit = score >= needed
        if not hit:
            self._metrics.refused("language" if score >= self._threshold else "judge")
        return self._decision(question, entry, score, similarity, hit=hit)

    def _score(self, question: str, stored: str, calls: TimedCalls, budget_s: float) -> float | None:
        """P(same), 0 for what is no probability; None: the judge cannot read the question."""
        try:
            (score,) = calls.call(
                self._guarded, lambda: self._judge.same([(question, stored)]), budget_s, (InvalidArgument,)
            )
        except Bypassed as missed:
            if not isinstance(missed.cause, InvalidArgument):
                raise
            self._metrics.refused("length")
            return None
        return score if 0 <= score <= 1 else 0.0

    def _foreign(self, text: str) -> bool:
        return is_foreign(text, self._calibration.languages)

    def _decision(
        self, question: Question, entry: Entry, score: float, similarity: float, *, hit: bool
    ) -> Decision:
        cosine = min(1.0, float(similarity))
        return Decision(question.scope, question.text, entry.text, score, hit, entry, cosine)
