"""An audit of the cache that draws every hit and keeps what it is told."""

from __future__ import annotations

from trimodal.cache.audit.values import Audit
from trimodal.cache.semantic.decision import Decision
from trimodal.cache.values import Entry, Place, Question

PLACE = Place("0123456789abcdef", "", "default", "0" * 64)


def decision(*, hit: bool, score: float = 0.95, tenant: str = "", answer: str = "Near.") -> Decision:
    """On two questions of a tenant."""
    entry = Entry("stored", answer, "stop", 2, 64, 0.0, 1e12)
    place = Place(PLACE.fingerprint, tenant, PLACE.namespace, PLACE.scope)
    return Decision(place, "asked", entry.text, score, hit, entry)


class PlayedAudits:
    """`share` of the engine is for audits."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self.misses: list[str] = []
        self.answers: list[tuple[str, str]] = []
        self.finished: list[tuple[Audit, str, str]] = []
        self.reasons: list[str] = []
        self.tokens = 0

    def hit(self, question: Question, decision: Decision) -> Audit | None:
        return Audit(decision, 1.0)

    def missed(self, question: Question, decision: Decision) -> None:
        self.misses.append(question.text)

    def answered(self, question: Question, answer: str, finish_reason: str) -> bool:
        self.answers.append((question.text, finish_reason))
        return True

    def finish(self, audit: Audit, answer: str, finish_reason: str) -> None:
        self.finished.append((audit, answer, finish_reason))

    def dropped(self, reason: str) -> None:
        self.reasons.append(reason)

    def close(self, timeout: float) -> None:
        """Nothing to end."""

    def spent(self, tokens: int) -> None:
        self.tokens += tokens
