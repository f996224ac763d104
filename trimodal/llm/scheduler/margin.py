"""How much later than foreseen a first text may come, so that most of the admitted are in time.

Split conformal prediction over a short window: the margin is a quantile of recent errors, whatever
their cause. Nothing is assumed about their distribution.
"""

from __future__ import annotations

import math
from collections import deque

from trimodal.llm.scheduler.residuals import Residuals
from trimodal.llm.scheduler.ticket import Ticket

_WINDOW = 512


class Margin:
    """Errors by tier, apart for those that go at once (absolute) and those that queue (relative).

    Args:
        confidence: share of the admitted that are to meet their deadline.
    """

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._errors: dict[tuple[str, bool], Residuals] = {}
        self._absolute: deque[float] = deque(maxlen=_WINDOW)

    def learn(self, ticket: Ticket, took: float, now: float) -> None:
        """A foreseen ticket took so many seconds to its first text (or had waited so long in vain)."""
        error = took - ticket.predicted_ttft
        self._absolute.append(abs(error))
        if ticket.queued:
            error /= ticket.predicted_ttft
        self._errors.setdefault((ticket.tier_name, ticket.queued), Residuals()).add(error, now)

    def seconds(self, ticket: Ticket, predicted: float, now: float) -> float:
        """What is to be added to a prediction; never less than -predicted; 0 while nothing is known."""
        errors = self._errors.get((ticket.tier_name, ticket.queued))
        error = errors.quantile(self._confidence, now) if errors else math.nan
        if math.isnan(error):
            return 0.0
        return max(-predicted, error * predicted if ticket.queued else error)

    def errors(self) -> tuple[float, float]:
        """Median and 90th percentile of the last errors' size, seconds; nan before there is one."""
        ordered = sorted(self._absolute)
        if not ordered:
            return math.nan, math.nan
        return ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10]
