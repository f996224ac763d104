"""Gathers when answers were last found, until the next write: a hit itself never writes.

Recency that are lost with a killed process only make an answer look older.
"""

from __future__ import annotations

import threading

LIMIT = 20_000


class Recency:
    """Name of an answer → when it was last used, seconds of the epoch. Called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[tuple[str, str], float] = {}

    def note(self, place: str, key: str, now: float) -> None:
        with self._lock:
            # Popped first, so that the order is by last use and the first is the one to forget.
            self._times.pop((place, key), None)
            self._times[place, key] = now
            if len(self._times) > LIMIT:
                del self._times[next(iter(self._times))]

    def take(self) -> list[tuple[str, str, float]]:
        """All (place, key, time) since the last call."""
        with self._lock:
            times, self._times = self._times, {}
        return [(place, key, time) for (place, key), time in times.items()]
