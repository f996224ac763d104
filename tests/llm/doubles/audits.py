"""An audit of the cache that draws every hit and keeps what it is told."""

from __future__ import annotations

from trimodal.cache.decision import Decision
from trimodal.cache.values import CacheScope, Entry, Question

SCOPE = CacheScope("0123456789abcdef", "", "default", "0" * 64)


def decision(*, hit: bool, score: float = 0.95, tenant: str = "", answer: str = "Near.") -> Decision:
    """On two questions of a tenant."""
    entry = Entry("stored", answer, "stop", 2, 64, 0.0, 1e12)
    scope = CacheScope(SCOPE.fingerprint, tenant, SCOPE.namespace, SCOPE.digest)
    return Decision(scope, "asked", entry.text, score, hit, entry)


class PlayedAudits:
    """`share` of the engine is for audits."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share
        self.misses: list[str] = []
        self.answers: list[tuple[str, str]] = []
        self.finished: list[tuple[Decision, str, str]] = []
        self.reasons: list[str] = []
        self.tokens = 0

    def hit(self, question: Question) -> bool:
        return True

    def missed(self, question: Question, decision: Decision) -> None:
        self.misses.append(question.text)

    def answered(self, question: Question, answer: str, finish_reason: str) -> bool:
        self.answers.append((question.text, finish_reason))
        return True

    def finish(self, decision: Decision, answer: str, finish_reason: str) -> None:
        self.finished.append((decision, answer, finish_reason))

    def dropped(self, reason: str) -> None:
        self.reasons.append(reason)

    def close(self, timeout: float) -> None:
        """Nothing to end."""

    def spent(self, tokens: int) -> None:
        self.tokens += tokens
