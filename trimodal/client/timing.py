"""Measures how long an answer took at the client, with the definitions of the server's histograms.

    TTFT     send → first non-empty text
    ITL      each gap between two deltas with text (a delta can hold several tokens)
    TPOT     (latency − TTFT) / (completion tokens − 1)
    latency  send → last delta

All in seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Figures of one answer, in seconds; `ttft` is None when no text came, `tpot` below two tokens."""

    ttft: float | None = None
    itl: tuple[float, ...] = ()
    latency: float = 0.0
    tpot: float | None = None

    def itl_percentile(self, percent: float) -> float | None:
        """Returns the ITL that `percent` of the gaps do not exceed; None without gaps."""
        return percentile(self.itl, percent)


class Stopwatch:
    """Takes the times of one answer as it arrives."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._sent = self._last = self._ended = clock()
        self._ttft: float | None = None
        self._itl: list[float] = []

    def text(self) -> None:
        """Notes a delta with text."""
        now = self._clock()
        if self._ttft is None:
            self._ttft = now - self._sent
        else:
            self._itl.append(now - self._last)
        self._last = self._ended = now

    def end(self) -> None:
        """Notes the end of the answer."""
        self._ended = self._clock()

    def read(self, completion_tokens: int) -> Timing:
        """Returns the figures so far."""
        latency = self._ended - self._sent
        tpot = None
        if self._ttft is not None and completion_tokens > 1:
            tpot = (latency - self._ttft) / (completion_tokens - 1)
        return Timing(self._ttft, tuple(self._itl), latency, tpot)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Nearest rank: the smallest value that at least `percent` of all do not exceed; None without values."""
    if not values:
        return None
    # Rounded first: 99.9 % of 1,000 is 999.0000000000001 in floats, and would give the maximum.
    rank = math.ceil(round(percent / 100 * len(values), 6))
    return sorted(values)[max(0, rank - 1)]
