"""Audits semantic hits and near misses: draws them, has their answers compared, and counts what came of it.

A hit was answered from the cache: the llm generates its answer once more when its engine is idle. A near miss
was generated for its client: that answer is compared, and the engine has no work with it. Answers that were
sampled differ anyway and are not audited.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from trimodal.cache.audit.compare import Embed, Same, compare
from trimodal.cache.audit.disagreements import write_pair
from trimodal.cache.audit.metrics import AuditMetrics
from trimodal.cache.bounded_calls import DaemonThreads
from trimodal.cache.decision import Decision
from trimodal.cache.values import Question

logger = logging.getLogger(__name__)

_REMEMBERED = 64
"""Near misses whose answers are being generated."""
_JOBS = 16
"""Pairs of answers that wait to be compared."""


class Auditor:
    """The audit of one model's cache. Called from several threads at once; no call waits for a model.

    Args:
        share: of the hits and near misses that are audited, above 0.
        file: for pairs that disagree; None: they are not written.
        embed, same: models that compare answers; None: there is none.
        draw: numbers from 0 to 1.
        submit: runs a job elsewhere, False: not now; a thread of its own as long as it is None.
        clock: seconds.
    """

    def __init__(
        self,
        share: float,
        metrics: AuditMetrics,
        *,
        file: Path | None = None,
        embed: Embed | None = None,
        same: Same | None = None,
        draw: Callable[[], float] = random.random,
        submit: Callable[..., bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.share = share
        self._metrics, self._embed, self._same = metrics, embed, same
        self._draw, self._clock = draw, clock
        self._file = file
        self._thread = DaemonThreads(1, "cache-audit", _JOBS)
        self._submit = submit or self._thread.submit
        self._lock = threading.Lock()  # guards what follows
        self._near: OrderedDict[str, Decision] = OrderedDict()

    def hit(self, question: Question) -> bool:
        """Draws whether a hit is audited: its question is then to be generated once more."""
        return self._drawn(question)

    def missed(self, question: Question, decision: Decision) -> None:
        """Takes the best near miss of a lookup that found nothing."""
        if not self._drawn(question):
            return
        with self._lock:
            self._near[question.key] = decision
            while len(self._near) > _REMEMBERED:
                self._near.popitem(last=False)

    def answered(self, question: Question, answer: str, finish_reason: str) -> bool:
        """Takes the answer that the engine gave to a client; whether it is for an audit."""
        with self._lock:
            decision = self._near.pop(question.key, None)
        if decision:
            self.finish(decision, answer, finish_reason)
        return decision is not None

    def finish(self, decision: Decision, answer: str, finish_reason: str) -> None:
        """Compares an audit's answers soon."""
        if not self._submit(self._compare, decision, answer, finish_reason):
            self.dropped("queue")

    def dropped(self, reason: str) -> None:
        """Counts an audit that came to nothing."""
        self._metrics.dropped(reason)

    def spent(self, tokens: int) -> None:
        """Counts tokens that the engine computed for audits."""
        self._metrics.spent(tokens)

    def close(self, timeout: float) -> None:
        """Ends the thread after what waits, for at most `timeout` seconds."""
        self._thread.close(timeout)

    def _drawn(self, question: Question) -> bool:
        return not question.sampled and self._draw() < self.share

    def _compare(self, decision: Decision, answer: str, finish_reason: str) -> None:
        try:
            stored = decision.entry.answer
            whole = finish_reason == decision.entry.finish_reason == "stop"
            agreement = compare(stored, answer, self._embed, self._same) if whole else "unclear"
        except Exception:
            logger.exception("an audit failed")
            self.dropped("failed")
            return
        self._metrics.audited(decision.hit, agreement, self._clock())
        if agreement == "disagreed" and decision.hit:
            self._write(decision, answer)

    def _write(self, decision: Decision, answer: str) -> None:
        if not self._file:
            return
        try:
            if write_pair(self._file, decision, answer):
                return
        except OSError as error:
            logger.warning("a pair that disagrees could not be written: %s", error.strerror)
        self.dropped("file")
