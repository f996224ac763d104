"""Audits semantic hits and near misses: draws them, has their answers compared, and moves the thresholds.

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
from dataclasses import dataclass
from pathlib import Path

from trimodal.cache.audit.compare import Embed, Same, compare
from trimodal.cache.audit.disagreements import Disagreements
from trimodal.cache.audit.metrics import AuditMetrics
from trimodal.cache.audit.promise import Group, Promises, Status
from trimodal.cache.audit.values import Audit
from trimodal.cache.bounded_calls import DaemonThreads
from trimodal.cache.semantic.decision import Decision
from trimodal.cache.values import Place, Question

logger = logging.getLogger(__name__)

_REMEMBERED = 64
"""Near misses whose answers are being generated."""
_JOBS = 16
"""Pairs of answers that wait to be compared."""


@dataclass(frozen=True)
class AuditOptions:
    """Options of an `Auditor`.

    Attributes:
        share: of the hits and near misses that are audited, above 0.
        max_false_hit: bound on wrong ones among semantic hits, 0 to 1.
        folder: for pairs that disagree; None: they are not written.
    """

    share: float
    max_false_hit: float
    folder: Path | None = None


class Auditor:
    """The audit of one model's cache. Called from several threads at once; no call waits for a model.

    Args:
        floor: calibrated threshold.
        embed, same: models that compare answers; None: there is none.
        draw: numbers from 0 to 1.
        submit: runs a job elsewhere, False: not now; a thread of its own as long as it is None.
        clock: seconds.
    """

    def __init__(
        self,
        options: AuditOptions,
        floor: float,
        metrics: AuditMetrics,
        *,
        embed: Embed | None = None,
        same: Same | None = None,
        draw: Callable[[], float] = random.random,
        submit: Callable[..., bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.share = options.share
        self._floor = floor
        self._metrics, self._embed, self._same = metrics, embed, same
        self._draw, self._clock = draw, clock
        self._promises = Promises(floor, options.max_false_hit, options.share)
        self._file = Disagreements(options.folder) if options.folder else None
        self._thread = DaemonThreads(1, "cache-audit", _JOBS)
        self._submit = submit or self._thread.submit
        self._lock = threading.Lock()  # guards what follows
        self._near: OrderedDict[str, Audit] = OrderedDict()

    def threshold(self, place: Place) -> float:
        """Score that a semantic hit at `place` needs."""
        return self._promises.threshold(place)

    def status(self, place: Place) -> Status:
        """What is known of the group of `place`."""
        return self._promises.status(Group.of(place))

    def hit(self, question: Question, decision: Decision) -> Audit | None:
        """Draws whether a hit is audited: its question is then to be generated once more; None: it is not."""
        if question.sampled or self._draw() >= self.share:
            return None
        return Audit(decision, self.share)

    def missed(self, question: Question, decision: Decision) -> None:
        """Takes the best near miss of a lookup that found nothing."""
        if question.sampled:
            return
        # What only a raised threshold holds back is all audited: this is how the threshold comes down again.
        floor = max(self._floor, decision.floor)
        held_back = floor <= decision.score < self.threshold(decision.place)
        probability = 1.0 if held_back else self.share
        if self._draw() >= probability:
            return
        with self._lock:
            self._near[question.key] = Audit(decision, probability)
            while len(self._near) > _REMEMBERED:
                self._near.popitem(last=False)

    def answered(self, question: Question, answer: str, finish_reason: str) -> bool:
        """Takes the answer that the engine gave to a client; whether it is for an audit."""
        with self._lock:
            audit = self._near.pop(question.key, None)
        if audit:
            self.finish(audit, answer, finish_reason)
        return audit is not None

    def finish(self, audit: Audit, answer: str, finish_reason: str) -> None:
        """Compares an audit's answers soon."""
        if not self._submit(self._compare, audit, answer, finish_reason):
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

    def _compare(self, audit: Audit, answer: str, finish_reason: str) -> None:
        decision = audit.decision
        try:
            stored = decision.entry.answer
            whole = finish_reason == decision.entry.finish_reason == "stop"
            agreement = compare(stored, answer, self._embed, self._same) if whole else "unclear"
        except Exception:
            logger.exception("an audit failed")
            self.dropped("failed")
            return
        place, score = decision.place, decision.score
        if decision.hit:
            kept = self._promises.hit(place, score, agreement)
        else:
            # No threshold lets pass what is below its own floor: it tells nothing about where to put one.
            judged = score if score >= decision.floor else 0.0
            kept = self._promises.near_miss(place, judged, agreement, audit.probability)
        if not kept:
            self.dropped("groups")
            return
        group = Group.of(place)
        self._metrics.audited(group, "hit" if decision.hit else "miss", agreement)
        if self._metrics.due(group, self._clock()):
            self._metrics.show(group, self._promises.status(group))
        if agreement == "disagreed" and decision.hit:
            self._write(decision, answer)

    def _write(self, decision: Decision, answer: str) -> None:
        if not self._file:
            return
        answers = decision.entry.answer, answer
        try:
            if self._file.write(decision.place, decision.asked, decision.stored, decision.score, answers):
                return
        except OSError as error:
            logger.warning("a pair that disagrees could not be written: %s", error.strerror)
        self.dropped("file")
