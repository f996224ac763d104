"""Slows a client down that sends faster than anybody speaks."""

from __future__ import annotations

import asyncio
import time

# 24 kHz PCM in base64 is 64 kB a second: two minutes of talk at once, then 16 times its speed.
BURST_BYTES = 8 << 20
BYTES_PER_S = 1 << 20
EVENT_BYTES = 2_048  # an event counts as so much at least: 512 a second


class Pace:
    """A bucket of bytes that fills steadily."""

    def __init__(self) -> None:
        self._left = float(BURST_BYTES)
        self._at = time.monotonic()

    async def take(self, size: int) -> None:
        """Waits until an event of this size may be handled."""
        now = time.monotonic()
        self._left = min(BURST_BYTES, self._left + (now - self._at) * BYTES_PER_S)
        self._at = now
        self._left -= max(size, EVENT_BYTES)
        if self._left < 0:
            await asyncio.sleep(-self._left / BYTES_PER_S)
