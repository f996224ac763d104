"""Asks the server's health page which models lost their process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

_ANSWER_S = 1.0  # the page answers at once, or not at all
_MOST_BYTES = 1 << 20


class HealthPage:
    """The page of one server, for one event loop: one question at a time serves all requests that wait."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._asking: asyncio.Task[dict[str, float]] | None = None

    async def lost(self, models: Sequence[str], waited: float) -> str:
        """The first of `models` that lost its process within the last `waited` seconds; empty: none did.

        Also empty without an answer.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        ago = await asyncio.shield(self._asking)
        return next((model for model in models if ago.get(model, waited) < waited), "")

    async def _ask(self) -> dict[str, float]:
        """Model → seconds since it lost its process; those that never did are missing."""
        try:
            page = json.loads(await asyncio.wait_for(self._get(), _ANSWER_S))
            return {str(name): float(ago) for name, ago in page.items()}
        except (OSError, asyncio.TimeoutError, ValueError, TypeError, AttributeError):
            return {}
        except (ArithmeticError, RecursionError):  # a number or JSON that no page of ours has
            return {}

    async def _get(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(f"GET /lost HTTP/1.0\r\nHost: {self._host}\r\n\r\n".encode())
            answer = b""
            while len(answer) < _MOST_BYTES and (more := await reader.read(1 << 16)):
                answer += more
            return answer.partition(b"\r\n\r\n")[2]
        finally:
            writer.close()
