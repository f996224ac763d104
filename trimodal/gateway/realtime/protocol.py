"""Bounds uvicorn's WebSockets: tells why one is closed, and ends those that do not read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

# Of JSON with base64: 65 s of 24 kHz audio. Larger frames close the socket with 1009.
MAX_FRAME_BYTES = 4 << 20
PING_S = 20.0
# Frames that end no message (pings, pongs, all but the last of a message's parts): at once, then a second.
# uvicorn (0.54) reads as many as come, keeps empty parts and answers pings of a client that reads no answer:
# one connection stopped everybody for 8 s.
SPARE_FRAMES, SPARE_FRAMES_PER_S = 1_024, 64
_PING = 16  # spare frames that a ping is: it is answered, and no client sends more than a few a second
# Bytes that are parsed before it is looked whether a message is there, or whether the rest is read at all: of
# pings 73. 3 MiB in one frame take 7 ms in such pieces, 2 ms in larger ones.
_PIECE = 512
# For the client's close frame, then for the end of the connection.
_CLOSE_S, _LINGER_S = 2.0, 4.0


class RealtimeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's, with a few differences."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.close_timeout = _CLOSE_S
        self._asked = self._failed = False
        self._unread = b""
        self._lost = False
        self._linger: asyncio.TimerHandle | None = None
        self._spare, self._spare_at = float(SPARE_FRAMES), self.loop.time()

    def keepalive_timeout(self) -> None:
        if self.read_paused or self._unread:
            # The pong may be there: nothing is read while Triton is behind, or a client too fast.
            self.pong_timer = self.loop.call_later(PING_S, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.abort()

    def data_received(self, data: bytes) -> None:
        if self._asked and not self.handshake_complete:  # a client has to wait for the handshake's answer
            self._failed = True
            self.abort()
        self._asked = True  # the first is the whole request
        self._unread += data
        self._read_on()

    def _read_on(self) -> None:
        """Parses what has come, until a message is there: the next is read when that one is handled."""
        at = 0
        while at < len(self._unread) and not (self.read_paused or self._failed):
            super().data_received(self._unread[at : at + _PIECE])
            at += _PIECE
            if self.conn.handshake_exc is not None and not self.handshake_initiated:
                self._refuse_request()
        self._unread = b"" if self._failed else self._unread[at:]  # the rest of what broke the protocol

    def _refuse_request(self) -> None:
        """Answers what websockets takes for no request: uvicorn (0.54) would keep it open, unanswered."""
        self._failed = True
        self.transport.write(self.conn.reject(400, "this is not a valid WebSocket request").serialize())
        self.transport.close()

    async def receive(self) -> Any:
        message = await super().receive()
        self._read_on()
        return message

    def handle_ping(self) -> None:
        if self._takes_spare(_PING):
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._takes_spare():
            super().handle_pong(event)

    def handle_text(self, event: Frame) -> None:
        if event.fin or self._takes_spare():
            super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._fail(CloseCode.UNSUPPORTED_DATA, "events are JSON in text frames")

    def handle_cont(self, event: Frame) -> None:
        if event.fin or self._takes_spare():
            super().handle_cont(event)

    def _takes_spare(self, frames: int = 1) -> bool:
        """Counts frames that end no message; one too many closes the socket."""
        now = self.loop.time()
        filled = self._spare + (now - self._spare_at) * SPARE_FRAMES_PER_S
        self._spare, self._spare_at = min(float(SPARE_FRAMES), filled) - frames, now
        if self._spare < 0:
            self._fail(CloseCode.POLICY_VIOLATION, "too many frames that end no message")
        return self._spare >= 0 and not self._failed

    def _fail(self, code: CloseCode, reason: str) -> None:
        if not self._failed and not self.close_sent:
            self.conn.fail(code, reason)
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        # uvicorn closes the transport here. While the client still writes, that resets the connection and the
        # client loses the close frame: 1006 in place of 1009, with a frame of 4 MiB on a busy machine.
        self._failed = self.close_sent = True
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
        closed = self.conn.close_sent
        assert closed is not None, "nothing is parsed before the socket is open"
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason})

    async def send(self, message: Any) -> None:
        if self._failed and not self.handshake_complete:
            raise ClientDisconnected
        await super().send(message)
        self._read_on()
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # refused; uvicorn would log an error

    async def run_asgi(self) -> None:
        await super().run_asgi()
        if not self._lost:
            self._linger = self.loop.call_later(_LINGER_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._linger is not None:  # it would keep this, and what is unread, for as long
            self._linger.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The sessions' drain closes it, with 1001."""

    def abort(self) -> None:
        self.transport.abort()  # to close it would wait for a peer that may not read
