"""An audit of the cache that draws every hit and keeps what it is told."""

from __future__ import annotations

from trimodal.cache.values import Entry, Question

STORED = Entry("stored", "Near.", "stop", 2, 64, 0.0, 1e12)


class PlayedAudits:
    """Stands for an `Auditor`."""

    def __init__(self) -> None:
        self.finished: list[tuple[Entry, str, str]] = []
        self.reasons: list[str] = []
        self.tokens = 0

    def draws(self, question: Question) -> bool:
        return True

    def finish(self, entry: Entry, answer: str, finish_reason: str) -> None:
        self.finished.append((entry, answer, finish_reason))

    def dropped(self, reason: str) -> None:
        self.reasons.append(reason)

    def close(self, timeout: float) -> None:
        """Nothing to end."""

    def spent(self, tokens: int) -> None:
        self.tokens += tokens
