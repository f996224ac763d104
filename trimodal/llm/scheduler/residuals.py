"""By how much recent predictions were wrong: a window of errors and its quantiles. It predicts nothing."""

from __future__ import annotations

import math
from collections import deque

_WINDOW = 128
_LIFE_S = 30.0
"""Older errors are forgotten: one that forbids a kind of admission would never be corrected by it."""
_LEAST = 8


class Residuals:
    """Errors in any one unit, observed minus foreseen. Times are seconds of the owner's clock."""

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
