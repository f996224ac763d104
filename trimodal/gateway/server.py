"""Runs the gateway: uvicorn with its connections bounded in header size and time, and a drain at the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trimodal.client.transports.base import Timeouts, Transport
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import ServerError
from trimodal.gateway.answering import encoded
from trimodal.gateway.app import make_app
from trimodal.gateway.errors import ApiError
from trimodal.gateway.realtime.protocol import MAX_FRAME_BYTES, PING_S, RealtimeProtocol
from trimodal.gateway.realtime.session import Sessions
from trimodal.gateway.settings import GatewaySettings
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.host import raise_open_files
from trimodal.server import ports
from trimodal.server.launch import GRPC_OPERATOR_HEADER

logger = logging.getLogger(__name__)
_CONNECTIONS = 4  # to each Triton
# Descriptors that are no client's: of the process itself, and of its connections to Tritons.
_OTHER_FILES, _FEWEST = 256, 64
HEADER_BYTES = 64 << 10
# Requests of a connection that wait for the answer to the one before; no client of today's sends any ahead.
# uvicorn (0.54) parses and keeps as many as come: 10 MB without a key took 400 MB, and everybody a second.
PIPELINED = 16
_TOLD_S = 60.0
_HTTP2 = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.I)
_POLL_S = 0.1
_COLLECT_AFTER = (10_000, 20, 50)


class Waiting:
    """The connections that have no request, oldest first; where there are too many in all, they make room.

    Those whose last request showed no key go first: who came with one and comes again is not who floods.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._unknown: dict[BoundedProtocol, None] = {}
        self._known: dict[BoundedProtocol, None] = {}
        self._told = -math.inf

    def add(self, one: BoundedProtocol, *, known: bool) -> None:
        (self._known if known else self._unknown)[one] = None

    def remove(self, one: BoundedProtocol) -> None:
        self._unknown.pop(one, None)
        self._known.pop(one, None)

    def too_many(self, newest: BoundedProtocol, count: int) -> BoundedProtocol | None:
        """Which connection is to end, now that there are `count`; None: none."""
        if count <= self._most:
            return None
        if time.monotonic() - self._told > _TOLD_S:
            self._told = time.monotonic()
            logger.warning("%d connections are open: those that wait longest are closed", self._most)
        return next(iter(self._unknown or self._known), newest)


class _Unchunked(RequestResponseCycle):
    """Answers HTTP/1.0, which knows no chunks: a body of unknown size ends with the connection."""

    _sized = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._sized = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            self.chunked_encoding = None if self._sized else False
        elif not self._sized:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds that it has none of: of headers, in size and time, of connections."""

    def __init__(self, *args: Any, waiting: Waiting, header_timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = waiting
        self._header_timeout_s = header_timeout_s
        self._header_bytes = 0
        self._in_headers = True
        self._ended = False  # nothing is read any more
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_headers()
        self._waiting.add(self, known=False)
        if last := self._waiting.too_many(self, len(self.connections)):
            last._end(ApiError(503, "too many connections are open", code="busy", retry_after_s=1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self._waiting.remove(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and not self._busy and not self.transport.is_closing():
            self._waiting.add(self, known="identified" in self.cycle.scope["state"])

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self._in_headers:
            if self._header_timer is None and not self._busy:
                self._await_headers()
            self._header_bytes += len(data)
            head, end, rest = data.partition(b"\r\n\r\n")
            # Java's clients offer HTTP/2 with each request; uvicorn (0.54) would drop its body.
            data = _HTTP2.sub(b"", head + end[:2]) + end[2:] + rest
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_BYTES:
            self._end(ApiError(431, f"the headers are larger than {HEADER_BYTES} bytes"))

    def on_headers_complete(self) -> None:
        self._headers_came()
        self._waiting.remove(self)
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            raise ValueError("too many requests were sent ahead")  # ends the parsing
        if self.scope["http_version"] == "1.0" and self.cycle is not None:
            self.cycle.__class__ = _Unchunked

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers, self._header_bytes = True, 0

    def handle_websocket_upgrade(self) -> None:
        if self._busy:
            self._end(ApiError(400, "a WebSocket is opened while a request has no whole answer"))
        else:
            super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._end(ApiError(400, "this is not a valid HTTP request"))

    @property
    def _busy(self) -> bool:
        """Whether a request has no whole answer yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(self._header_timeout_s, self._too_slow)

    def _headers_came(self) -> None:
        self._in_headers = False
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _too_slow(self) -> None:
        self._end(ApiError(408, f"the headers were not complete within {self._header_timeout_s:g} s"))

    def _end(self, error: ApiError) -> None:
        """Answers without the application, and closes the connection; a running answer ends before."""
        self._headers_came()
        self._waiting.remove(self)
        self._ended = True
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.transport.close()
            return
        cycle = self.cycle
        if cycle is not None and self._busy and (cycle.response_started or not cycle.more_body):
            cycle.keep_alive = False
            return
        body = encoded(error.body)
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        head += "content-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()


class _DrainingServer(uvicorn.Server):
    """uvicorn's, whose drain also ends the realtime sessions."""

    def __init__(self, config: uvicorn.Config, sessions: Sessions) -> None:
        super().__init__(config)
        self._sessions = sessions

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A second is for the closing itself.
        patience = max(0.0, (self.config.timeout_graceful_shutdown or 0) - 1.0)
        await asyncio.gather(self._sessions.drain(patience), super().shutdown(sockets))
        for connection in list(self.server_state.connections):
            if isinstance(connection, RealtimeProtocol):  # its client does not read
                connection.abort()


class GatewayServer:
    """A gateway: `listen`, then `run` until a signal or `stop`.

    Args:
        connect: makes the transport to a Triton's address; None: over gRPC.
    """

    def __init__(self, settings: GatewaySettings, connect: Callable[[str], Transport] | None = None) -> None:
        self._settings = settings
        operator = {GRPC_OPERATOR_HEADER: settings.operator_key} if settings.operator_key else {}
        connect = connect or partial(
            GrpcTransport, timeouts=Timeouts(), connections=_CONNECTIONS, operator=tuple(operator.items())
        )
        upstreams = Upstreams(settings.upstreams or settings.upstream, connect, settings.routes)
        app = make_app(settings, upstreams)
        waiting = Waiting(settings.max_connections or max(_FEWEST, raise_open_files() - _OTHER_FILES))
        protocol = partial(BoundedProtocol, waiting=waiting, header_timeout_s=settings.header_timeout_s)
        config = uvicorn.Config(
            app,
            http=protocol,  # type: ignore[arg-type]  # it calls it
            loop="uvloop",
            ws=RealtimeProtocol,
            ws_max_size=MAX_FRAME_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=ports.BACKLOG,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=round(settings.drain_timeout_s),
        )
        self._server = _DrainingServer(config, app.state.sessions)
        self._socket: socket.socket | None = None

    def listen(self, opened: socket.socket | None = None) -> str:
        """Opens the port, or takes one that listens already; returns the URL. Raises: ServerError."""
        host = self._settings.host
        self._socket = opened or ports.listen(host, self._settings.port)
        return f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}"

    @contextlib.contextmanager
    def serving(self, hurry: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Serves from a thread while the block lasts, and drains at its end, unless `hurry()`.

        Raises: ServerError when it does not start.
        """
        thread = threading.Thread(target=self.run, name="gateway", daemon=True)
        thread.start()
        try:
            while not self._server.started:
                thread.join(0.01)
                if not thread.is_alive():
                    raise ServerError("the gateway does not start; the log has the reason")
            yield
        finally:
            self.stop()
            while thread.is_alive() and not hurry():
                thread.join(_POLL_S)

    def run(self) -> None:
        """Serves until SIGINT, SIGTERM or `stop`, then drains."""
        assert self._socket is not None, "listen() comes first"
        # Their warnings are of requests that are no HTTP or no form: whoever sends them would fill the log.
        for noisy in ("uvicorn.error", "python_multipart"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        if threading.current_thread() is threading.main_thread():
            # uvicorn takes the signals over while it serves, and raises them again when it has drained.
            for name in (signal.SIGINT, signal.SIGTERM):
                signal.signal(name, lambda number, frame: None)
            # uvicorn leaves this one to the system, which would cut every answer; under nohup it is ignored.
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                signal.signal(signal.SIGHUP, lambda number, frame: self.stop())
            # The process is the gateway's own. A delta makes dozens of objects: by its defaults the collector
            # runs every few of them, also through all that was imported (322 µs a delta; with this, 296).
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_COLLECT_AFTER)
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Asks for the drain; from any thread."""
        self._server.should_exit = True
