"""Connects one WebSocket with its session: frames in, events out, until either ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from trimodal.gateway.answering import encoded
from trimodal.gateway.realtime.outbox import Close
from trimodal.gateway.realtime.session import Session

# For the last events and the closing of a client that may not read.
_CLOSE_S = 2.0
# Not closed by a frame; whoever closes, or sends what is no WebSocket, has left.
_CUT = (None, 1006)


class Connection:
    """One socket, accepted already."""

    def __init__(self, websocket: WebSocket, session: Session) -> None:
        self._websocket = websocket
        self._session = session

    async def run(self, after: int, *, resumed: bool) -> None:
        """Returns when the socket is closed. `after`: the number of the last event that the client has."""
        session = self._session
        taken = await session.attach()
        reading = asyncio.ensure_future(self._read(taken))
        writing = asyncio.ensure_future(self._write(after, resumed=resumed))
        waits = [asyncio.ensure_future(one.wait()) for one in (taken, session.over)]
        try:
            await asyncio.wait((reading, writing, *waits), return_when=asyncio.FIRST_COMPLETED)
            if session.outbox.ending and not reading.done():
                await asyncio.wait((reading, writing), timeout=_CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() and not taken.is_set() and session.outbox.ending is None:
                # The socket is lost: why, the reader learns next.
                await asyncio.wait((reading,), timeout=_CLOSE_S)
        finally:
            for task in (reading, writing, *waits):
                task.cancel()
            code = await _result(reading)
            await _result(writing)
            session.detach(taken, cut=code in _CUT)
        if code is None:
            ending = session.outbox.ending or Close(1008, "the session goes on over another connection")
            with suppress(asyncio.TimeoutError, RuntimeError, WebSocketDisconnect):
                await asyncio.wait_for(self._websocket.close(ending.code, ending.reason), _CLOSE_S)

    async def _read(self, taken: asyncio.Event) -> int:
        """Handles frames, the next when the last one is done. Returns the client's close code."""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return int(message.get("code") or 1006)
            await self._session.handle(message.get("text"), taken)

    async def _write(self, after: int, *, resumed: bool) -> None:
        if resumed:
            event = {"type": "session.resumed", "id": self._session.id, "received": self._session.received}
            await self._websocket.send_text(encoded(event).decode())
        async for line in self._session.outbox.lines(after):
            await self._websocket.send_text(line)


async def _result(task: asyncio.Task[Any]) -> Any:
    """What a task gave; None where it was cancelled or its socket was lost."""
    try:
        return await task
    except (asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
        return None
