"""Which share of the engine each priority has used of late: what those below it have to expect of it."""

from __future__ import annotations

import math

_SPAN_S = 30.0
_MOST = 0.95
"""Never all of it: a forecast has to stay finite."""


class Usage:
    """Decaying sums of share · seconds, by priority. Times are seconds of the owner's clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._used: dict[int, tuple[float, float]] = {}

    def add(self, priority: int, share_seconds: float, now: float) -> None:
        """A request of a priority held so much of the engine (all of it for a second: 1)."""
        self._used[priority] = (self._now(priority, now) + share_seconds, now)

    def above(self, rank: float, now: float) -> float:
        """The share, 0 to 0.95, that priorities above `rank` use."""
        # Not a whole span has passed at first: what there is stands for less time.
        span = _SPAN_S * -math.expm1(-max(now - self._began, 1.0) / _SPAN_S)
        used = sum(self._now(priority, now) for priority in self._used if priority > rank)
        return min(_MOST, used / span)

    def _now(self, priority: int, now: float) -> float:
        used, since = self._used.get(priority, (0.0, now))
        return used * math.exp((since - now) / _SPAN_S)
