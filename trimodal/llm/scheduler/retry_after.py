"""Computes `retry_after_s` for rejected requests.

Each rejection gets a later time than the one before, one turn of the queue apart, so that clients do not all
retry at once. Nothing is reserved for them.
"""

from __future__ import annotations

import math
from collections import deque

_TURNS = 16
_MOST_S = 10.0  # at most so long for the others that were rejected: not all of them come again


def bounded(seconds: float) -> float:
    """A hint within its bounds."""
    return max(0.05, min(seconds, 60.0))


class RetryAfter:
    """Knows how often a request is scheduled, and when the refused of each priority come back. In seconds."""

    def __init__(self) -> None:
        self._turns: deque[float] = deque(maxlen=_TURNS)
        self._expected: dict[int, tuple[float, float]] = {}

    def handed_over(self, now: float) -> None:
        """Notes that a ticket left the queue for the engine."""
        self._turns.append(now)

    def idle_s(self, now: float) -> float:
        """How long ago the last ticket was handed over; inf: none was."""
        return now - self._turns[-1] if self._turns else math.inf

    def turn_s(self, now: float) -> float:
        """Mean time between the last hand-overs; 1 before there was one."""
        return min(1.0, (now - self._turns[0]) / len(self._turns)) if self._turns else 1.0

    def hint(self, priority: int, late: float, now: float) -> float:
        """After how many seconds a request that would come `late` is worth another try."""
        expected, since = self._expected.get(priority, (0.0, now))
        mine = min(_MOST_S, max(0.0, expected - (now - since)) + self.turn_s(now))
        self._expected[priority] = mine, now
        above = (
            max(0.0, expected - (now - since))
            for other, (expected, since) in self._expected.items()
            if other > priority
        )
        return bounded(late + min(_MOST_S, mine + sum(above)))
