"""Decides how many replicas there should be, as KEDA with a HorizontalPodAutoscaler does."""

from __future__ import annotations

import math
from collections import deque

from trimodal.plan.fleet.plans import Scaling

_UP = 4  # replicas that may always be added at once
_ROUNDING = 1e-6  # a ratio of 2 that is a little more in floating point is 2


class Autoscaler:
    """Keeps what was seen since the last look, and what was wanted within the cooldown.

    Args:
        ttft: the bound that a late first token exceeds, seconds.
    """

    def __init__(self, scaling: Scaling, ttft: float) -> None:
        self.scaling = scaling
        self._ttft = ttft
        self._waited = 0.0
        self._handed = self._firsts = self._late = 0
        self._wanted: deque[tuple[float, int]] = deque()

    def handed(self, waited: float) -> None:
        """An engine took a request that waited so long."""
        self._waited += waited
        self._handed += 1

    def told(self, ttft: float) -> None:
        """A request has its first token."""
        self._firsts += 1
        self._late += ttft > self._ttft

    def look(self, now: float, current: int, waits: list[float], in_flight: int) -> int:
        """How many replicas there should be now, and begins to count anew.

        Args:
            current: those that serve or start. waits: seconds of each request that still waits.
            in_flight: requests that all of them have.
        """
        scaling = self.scaling
        ratio = self._value(current, waits, in_flight) / scaling.target
        self._waited = 0.0
        self._handed = self._firsts = self._late = 0
        wanted = current if abs(ratio - 1) <= scaling.tolerance else math.ceil(current * ratio - _ROUNDING)
        wanted = min(scaling.max, max(scaling.min, wanted))
        seen = self._wanted
        seen.append((now, wanted))
        while seen[0][0] < now - scaling.cooldown_s:
            seen.popleft()
        if wanted > current:
            most = max(math.floor(current * (1 + scaling.up_share)), current + _UP)
            return min(wanted, most)
        # Down only to what was enough all the time.
        enough = max(one for _, one in seen)
        if enough >= current:
            return current
        return max(enough, current - max(1, math.floor(current * scaling.down_share)))

    def _value(self, current: int, waits: list[float], in_flight: int) -> float:
        if self.scaling.metric == "in_flight":
            return in_flight / max(1, current)
        if self.scaling.metric == "ttft_burn_rate":
            late = self._late / self._firsts if self._firsts else 0.0
            return late / (1 - self.scaling.objective)
        count = self._handed + len(waits)
        return (self._waited + sum(waits)) / count if count else 0.0
