"""Bounds uvicorn's WebSockets: tells why one is closed, and ends those that do not read."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# Of JSON with base64: 65 s of 24 kHz audio. Larger frames close the socket with 1009.
MAX_FRAME_BYTES = 4 << 20
PING_S = 20.0
# For the client's close frame, then for the end of the connection.
_CLOSE_S, _LINGER_S = 2.0, 4.0


class RealtimeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's, with a few differences."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.close_timeout = _CLOSE_S
        self._failed = False

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.abort()

    def data_received(self, data: bytes) -> None:
        if self._failed:  # the rest of what broke the protocol
            return
        super().data_received(data)

    def handle_parser_exception(self) -> None:
        # uvicorn closes the transport here. While the client still writes, that resets the connection and the
        # client loses the close frame: 1006 in place of 1009, with a frame of 4 MiB on a busy machine.
        assert self.conn.close_sent is not None
        self._failed = self.close_sent = True
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # refused; uvicorn would log an error

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(_LINGER_S, self.abort)

    def shutdown(self) -> None:
        """The sessions' drain closes it, with 1001."""

    def abort(self) -> None:
        self.transport.abort()  # to close it would wait for a peer that may not read
