"""Which share of the engine each priority has used of late: what those below it have to expect of it."""

from __future__ import annotations

import math

_SPAN_S = 30.0
_STEPS = 256


class Usage:
    """Decaying sums of share · seconds, by priority. Times are seconds of the owner's clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._used: dict[int, tuple[float, float]] = {}

    def add(self, priority: int, share_seconds: float, now: float) -> None:
        """A request of a priority held so much of the engine (all of it for a second: 1)."""
        self._used[priority] = (self._now(priority, now) + share_seconds, now)

    def stretched(self, wait: float, rank: float, ageing_s: float, now: float) -> float:
        """A wait of class `rank` with what higher classes will take of it; the waiting one ages meanwhile."""
        passed = 0.0
        for step in range(_STEPS):
            free = 1 - self.above(rank + step, now)
            if free == 1 or wait <= free * ageing_s:
                return passed + wait / free
            wait -= free * ageing_s
            passed += ageing_s
        return passed + wait

    def above(self, rank: float, now: float) -> float:
        """The share, 0 to 1, that priorities above `rank` use."""
        # Not a whole span has passed at first: what there is stands for less time.
        span = _SPAN_S * -math.expm1(-max(now - self._began, 1.0) / _SPAN_S)
        used = sum(self._now(priority, now) for priority in self._used if priority > rank)
        return min(1.0, used / span)

    def _now(self, priority: int, now: float) -> float:
        used, since = self._used.get(priority, (0.0, now))
        return used * math.exp((since - now) / _SPAN_S)
