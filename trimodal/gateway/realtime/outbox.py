"""Numbers a session's events, and keeps them for a client that comes back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from trimodal.gateway.answering import encoded

# Minutes of a talk. What was not read when it is forgotten is a client's that does not read.
KEEP_BYTES = 1 << 20


@dataclass(frozen=True)
class Close:
    """How a socket is closed."""

    code: int
    reason: str


class Outbox:
    """The events of one session, from the newest back to where KEEP_BYTES end.

    Attributes:
        ending: set by `end`: no event comes any more.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._first = 1  # the number of the oldest line
        self._bytes = 0
        self._read = 0  # the number of the line that a connection was given last
        self._news = asyncio.Event()
        self.ending: Close | None = None

    @property
    def last(self) -> int:
        """Number of the newest event; 0 before the first."""
        return self._first + len(self._lines) - 1

    @property
    def overrun(self) -> bool:
        """Whether events were forgotten that no connection has been given."""
        return self._read + 1 < self._first

    def put(self, kind: str, **fields: object) -> None:
        """Adds an event; nothing after `end`."""
        if self.ending:
            return
        line = encoded({"type": kind, "event_id": f"event_{self.last + 1}", **fields}).decode()
        self._lines.append(line)
        self._bytes += len(line)
        while self._bytes > KEEP_BYTES and len(self._lines) > 1:
            self._bytes -= len(self._lines.popleft())
            self._first += 1
        self._news.set()

    def end(self, code: int, reason: str) -> None:
        """Closes the socket so once its events are sent, and takes no more; a second call changes nothing."""
        self.ending = self.ending or Close(code, reason)
        self._news.set()

    def holds(self, after: int) -> bool:
        """Whether every event after this number is still here."""
        return self._first - 1 <= after <= self.last

    async def lines(self, after: int) -> AsyncIterator[str]:
        """Yields what comes after this number until the end, or to where too much was forgotten.

        A connection that is lost may still read while the next one does.
        """
        at = self._read = after
        while at + 1 >= self._first:
            while at == self.last:
                if self.ending:
                    return
                self._news.clear()
                await self._news.wait()
            at += 1
            self._read = at
            yield self._lines[at - self._first]
