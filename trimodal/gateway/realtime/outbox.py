"""Numbers a session's events, and holds them until its client reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from trimodal.gateway.answering import encoded

# Minutes of a talk: who has so much unread does not read.
MOST_UNREAD_BYTES = 1 << 20


@dataclass(frozen=True)
class Close:
    """How a socket is closed."""

    code: int
    reason: str


class Outbox:
    """The events of one session that its client has not been sent."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._count = 0
        self._news = asyncio.Event()
        self.ending: Close | None = None

    def put(self, kind: str, **fields: object) -> None:
        """Adds an event; nothing after `end`. Who has too much unread is left, so that no event gets lost."""
        if self._bytes > MOST_UNREAD_BYTES:
            self.end(1008, "the client does not read")
        if self.ending:
            return
        self._count += 1
        line = encoded({"type": kind, "event_id": f"event_{self._count}", **fields}).decode()
        self._lines.append(line)
        self._bytes += len(line)
        self._news.set()

    def end(self, code: int, reason: str) -> None:
        """Closes the socket so once its events are sent, and takes no more; a second call changes nothing."""
        self.ending = self.ending or Close(code, reason)
        self._news.set()

    async def lines(self) -> AsyncIterator[str]:
        """Yields events until the end."""
        while self._lines or not self.ending:
            if not self._lines:
                self._news.clear()
                await self._news.wait()
                continue
            line = self._lines.popleft()
            self._bytes -= len(line)
            yield line
