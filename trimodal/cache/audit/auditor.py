"""Audits semantic hits: draws them, compares the stored with a fresh answer, and counts what came of it.

The llm generates the answer of a drawn hit once more when its engine is idle. Answers that were sampled
differ anyway and are not audited.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable

from trimodal.cache.audit.compare import compare
from trimodal.cache.bounded_calls import DaemonThreads
from trimodal.cache.values import Embed, Entry, Question, Same
from trimodal.metrics import Metrics, counters

logger = logging.getLogger(__name__)

AGREEMENTS = ("agreed", "disagreed", "unclear")
DROPPED = ("queue", "busy", "interrupted", "failed")
_P = "trimodal_cache_audit"
_JOBS = 16
"""Pairs of answers that wait to be compared."""
_DEVIATIONS = 1.96  # of a normal distribution: 95 % lie within


class Auditor:
    """The audit of one model's cache. Called from several threads at once; no call waits for a model.

    Args:
        share: of the hits that are audited, above 0.
        model: the llm's name, a label of the metrics.
        embed, same: models that compare answers; None: there is none.
        draw: numbers from 0 to 1.
    """

    def __init__(
        self,
        share: float,
        metrics: Metrics,
        model: str,
        *,
        embed: Embed | None = None,
        same: Same | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.share = share
        self._embed, self._same, self._draw = embed, same, draw
        self._thread = DaemonThreads(1, "cache-audit", _JOBS)
        answers, dropped = "Audited hits by agreement of the answers", "Audits without a result, by reason"
        self._counts = counters(f"{_P}_answers_total", metrics, answers, "agreement", AGREEMENTS, model=model)
        self._dropped = counters(f"{_P}_dropped_total", metrics, dropped, "reason", DROPPED, model=model)
        self._tokens = metrics.counter(
            f"{_P}_tokens_total", "Tokens that the engine computed for audits", {"model": model}
        )
        self._metrics, self._model = metrics, model
        self._seen = dict.fromkeys(AGREEMENTS, 0)  # of the one thread that compares

    def draws(self, question: Question) -> bool:
        """Draws whether a hit is audited: its question is then to be generated once more."""
        return not question.sampled and self._draw() < self.share

    def finish(self, entry: Entry, answer: str, finish_reason: str) -> None:
        """Compares a stored answer with a fresh one soon."""
        if not self._thread.submit(self._compare, entry, answer, finish_reason):
            self.dropped("queue")

    def dropped(self, reason: str) -> None:
        """Counts an audit that came to nothing."""
        self._dropped[reason].increment(1)

    def spent(self, tokens: int) -> None:
        """Counts tokens that the engine computed for audits."""
        self._tokens.increment(tokens)

    def close(self, timeout: float) -> None:
        """Ends the thread after what waits, for at most `timeout` seconds."""
        self._thread.close(timeout)

    def _compare(self, entry: Entry, answer: str, finish_reason: str) -> None:
        try:
            whole = finish_reason == entry.finish_reason == "stop"
            agreement = compare(entry.answer, answer, self._embed, self._same) if whole else "unclear"
        except Exception:
            logger.exception("an audit failed")
            self.dropped("failed")
            return
        self._seen[agreement] += 1
        self._counts[agreement].increment(1)
        agreed, disagreed, unclear = self._seen.values()
        clear, audited = agreed + disagreed, agreed + disagreed + unclear
        lower, upper = wilson(disagreed, audited)[0], wilson(disagreed + unclear, audited)[1]
        estimate = disagreed / clear if clear else 0.0
        for bound, value in (("estimate", estimate), ("lower", lower), ("upper", upper)):
            labels = {"model": self._model, "bound": bound}
            text = "Wrong ones among semantic hits, 0 to 1"
            self._metrics.gauge(f"{_P}_false_hit_ratio", text, labels).set(value)


def wilson(counted: int, samples: int) -> tuple[float, float]:
    """Bounds of a rate, 0 to 1, of which `counted` of one or more samples tell (95 %, Wilson's score)."""
    square = _DEVIATIONS**2
    centre = (counted + square / 2) / (samples + square)
    spread = (
        _DEVIATIONS * math.sqrt(counted * (samples - counted) / samples + square / 4) / (samples + square)
    )
    return max(0.0, centre - spread), min(1.0, centre + spread)
