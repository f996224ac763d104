"""Says how long to wait before what died is started again."""

from __future__ import annotations

import time

CALM_S = 60.0
LONGEST_WAIT_S = 30.0


class Backoff:
    """No wait at first, then 1, 2, 4 … 30 s, until a start was followed by a calm minute."""

    def __init__(self) -> None:
        self._starts = 0
        self._last = 0.0  # when the last start was, or is to be, by the monotonic clock

    def next(self) -> float:
        """Seconds to wait before the next start."""
        now = time.monotonic()
        if now - self._last > CALM_S:
            self._starts = 0
        wait = min(LONGEST_WAIT_S, 2.0 ** (self._starts - 1)) if self._starts else 0.0
        self._starts += 1
        self._last = now + wait
        return wait
