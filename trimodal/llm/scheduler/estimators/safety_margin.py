"""Learns how much later than predicted a first text may come, so that most of the admitted are in time.

Conformal prediction over a short window: the margin is a quantile of recent errors, whatever their
cause and distribution. When more are late than may be, a higher quantile is taken until they are not
(adaptive conformal inference): load that changes makes yesterday's errors too small.
"""

from __future__ import annotations

import math
from collections import deque

from trimodal.llm.scheduler.ticket import Ticket

_WINDOW = 128
_LIFE_S = 30.0
"""Older errors are forgotten: one that prevents all admissions of a kind would never be corrected."""
_LEAST = 8


class Residuals:
    """Keeps recent errors, observed minus predicted. Times are seconds of the owner's clock."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float]] = deque(maxlen=_WINDOW)
        self._ordered: list[float] | None = None

    @property
    def count(self) -> int:
        """Errors in the window."""
        return len(self._errors)

    def add(self, error: float, now: float) -> None:
        """Takes one error."""
        self._errors.append((now, error))
        self._ordered = None

    def quantile(self, share: float, now: float) -> float:
        """The error that `share` of the recent ones do not exceed; nan with too few of them."""
        while self._errors and self._errors[0][0] < now - _LIFE_S:
            self._errors.popleft()
            self._ordered = None
        if len(self._errors) < _LEAST:
            return math.nan
        if self._ordered is None:
            self._ordered = sorted(error for _, error in self._errors)
        # As in conformal prediction: the rank among n + 1, for the error that comes next.
        rank = math.ceil(share * (len(self._ordered) + 1))
        return self._ordered[min(rank, len(self._ordered)) - 1]


_OWN = 40  # errors of its own before a tier's margin is from those alone
_RATE, _HIGHEST = 0.02, 0.99  # by how much one late answer moves the quantile, and how far it may go


class SafetyMargin:
    """Keeps the errors of each tier, apart for those that go at once and those that queue.

    A queue's errors grow with the root of the prediction: a wait is a sum of ends, each early or late.

    Args:
        confidence: share of the admitted that are to meet their deadline.
    """

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._errors: dict[tuple[str, bool], Residuals] = {}
        self._of_all = {False: Residuals(), True: Residuals()}
        self._levels: dict[str, float] = {}

    def learn(self, ticket: Ticket, took: float, now: float) -> None:
        """Learns from a ticket that took so many seconds to its first text, or waited so long without one."""
        name = ticket.tier_name
        if ticket.ttft_deadline < math.inf:
            late = ticket.arrived + took > ticket.ttft_deadline
            level = self._levels.get(name, self._confidence) + _RATE * (late - (1 - self._confidence))
            self._levels[name] = max(self._confidence, min(level, _HIGHEST))
        error = took - ticket.predicted_ttft
        if ticket.queued:
            error /= math.sqrt(ticket.predicted_ttft)
        self._errors.setdefault((name, ticket.queued), Residuals()).add(error, now)
        if ticket.ttft_deadline < math.inf:
            self._of_all[ticket.queued].add(error, now)

    def seconds(self, ticket: Ticket, predicted: float, now: float) -> float:
        """What is to be added to a prediction; never less than -predicted; 0 while nothing is known."""
        errors = self._errors.get((ticket.tier_name, ticket.queued))
        level = self._levels.get(ticket.tier_name, self._confidence)
        error = errors.quantile(level, now) if errors else math.nan
        if math.isnan(error):
            return 0.0
        if errors and errors.count < _OWN:
            # Of a few, a high quantile is the worst of them: one bad moment would keep a small tier out.
            of_all = self._of_all[ticket.queued].quantile(self._confidence, now)
            error = error if math.isnan(of_all) else min(error, of_all)
        return max(-predicted, error * math.sqrt(predicted) if ticket.queued else error)
