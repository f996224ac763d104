"""How often a lost engine is opened again before it is given up. It opens nothing itself."""

from __future__ import annotations

import time

RESTARTS = 3
WINDOW_S = 300.0


class Restarts:
    """Losses of one engine, of the last minutes."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def another(self) -> bool:
        """Counts a loss; False when there were too many in a short time."""
        now = time.monotonic()
        self._losses = [at for at in self._losses if now - at < WINDOW_S] + [now]
        return len(self._losses) <= RESTARTS
