"""Looks at requests before they are read: where they come from, their key, their bytes, values and time."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from trimodal.gateway.access import Caller, request_id
from trimodal.gateway.answering import refuse
from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import Key
from trimodal.gateway.settings import GatewaySettings
from trimodal.settings import shorten

# A talk of 1,024 messages, a text and a picture each, has 11,000.
MAX_VALUES = 20_000
# Bodies of the largest size that may be held at once, whole ones of requests that run included.
HELD_BODIES = 8
# Bytes of a body that is read although its key is at its limits: a client that still sends would have its
# connection reset, and not see why.
_READ_ANYWAY = 1 << 20
_WITHOUT_BODY = {"GET", "HEAD", "OPTIONS"}
# Ends of names that no public server gives out.
_PRIVATE = (".localhost", ".local", ".internal", ".home.arpa", ".svc", ".cluster.local")


def check_encoding(raw: bytes) -> None:
    """Raises: ApiError 400 where JSON is not in UTF-8.

    Python's json reads UTF-16 and UTF-32 too, in which `check_values` counted other signs than it: 4 MB
    stopped everybody for 9 s. Both have zero bytes, or are no UTF-8.
    """
    try:
        if b"\0" not in raw and (raw.isascii() or raw.decode()):
            return
    except UnicodeDecodeError:
        pass
    raise ApiError(400, "the body is not JSON in UTF-8", code="invalid_json")


def check_values(raw: bytes) -> None:
    """Bounds how many values there are in a JSON text. Raises: ApiError 400.

    A megabyte can hold 300,000. pydantic (2.14) goes on after the first wrong one and makes an error for
    each: everybody else waited for seconds.
    """
    if _separators(raw) <= MAX_VALUES:  # with those in its strings
        return
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') <= 2 * MAX_VALUES:
        outside = b"".join(unescaped.split(b'"')[::2])
        if _separators(outside) <= MAX_VALUES:
            return
    raise ApiError(400, f"the JSON has more than {MAX_VALUES} values", code="too_many_values")


def _separators(raw: bytes) -> int:
    """Every value but the outermost has one before it."""
    return sum(raw.count(one) for one in (b",", b"[", b"{"))


class _Held:
    """The bytes of all bodies that are held. Of one event loop: it has no lock.

    Where they would be too many, the body that is on its way for longest is ended: one that comes slowly on
    purpose keeps nobody out.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._sizes: dict[asyncio.Future[bytes | None], int] = {}  # oldest first

    def add(self, body: asyncio.Future[bytes | None], size: int) -> None:
        """Raises: ApiError 503 where the bodies of requests that run leave no room."""
        while size > self._left:
            oldest = next((one for one in self._sizes if not one.done()), body)
            if oldest is body:
                message = "the bodies of other requests take all room"
                raise ApiError(503, message, code="busy", retry_after_s=1.0)
            self.remove(oldest)
            oldest.cancel()
        self._sizes[body] = self._sizes.get(body, 0) + size
        self._left -= size

    def remove(self, body: asyncio.Future[bytes | None]) -> None:
        self._left += self._sizes.pop(body, 0)


class BodyLimits:
    """ASGI middleware: bounds the bytes of a body, those of all together, and the seconds until it is there.

    Bodies come uncompressed: one of 4 MB could stand for gigabytes.

    Args:
        identify: raises ApiError where a request shows no key that is known; asked before its body is read.
        count: raises ApiError where its key is at its limits; asked before its body is read, which counts
            also where it turns out wrong or never comes.
        hold_s: for how long a refusal for limits is held back.
    """

    def __init__(
        self,
        app: ASGIApp,
        identify: Callable[[HTTPConnection], Caller],
        count: Callable[[HTTPConnection, Key], None],
        hold_s: Callable[[Key], float],
        max_bytes: int,
        timeout_s: float,
    ) -> None:
        self._app = app
        self._identify = identify
        self._count = count
        self._hold_s = hold_s
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._held = _Held(HELD_BODIES * max_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)  # no handler of these reads one
            return
        connection = HTTPConnection(scope)
        reading: asyncio.Future[bytes | None] | None = None
        whole = False
        try:
            try:
                caller = self._identify(connection)
                size = self._check_headers(connection)
                limited = self._limited(connection, caller.key)
                if limited:
                    await asyncio.sleep(self._hold_s(caller.key))
                if limited and size > _READ_ANYWAY:
                    raise limited
                reading = asyncio.ensure_future(self._read(receive))
                body = await self._whole(reading)
                whole = True
                if limited:
                    raise limited
                kind = connection.headers.get("content-type", "").lower()
                if body and not kind.startswith("multipart/"):
                    check_encoding(body)
                    check_values(body)
                    # curl -d says that JSON is a form: no kind but this one has its own reader.
                    headers = scope["headers"]
                    scope["headers"] = [header for header in headers if header[0] != b"content-type"]
            except ApiError as error:
                await refuse(send, error, request_id(connection), close=not whole)
                return
            if body is not None:  # the client did not leave
                await self._app(scope, _again(body, receive), self._holding(caller.key, reading, send))
        finally:
            if reading is not None:
                reading.cancel()
                self._held.remove(reading)

    def _holding(self, key: Key, reading: asyncio.Future[bytes | None], send: Send) -> Send:
        async def held(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 429:
                self._held.remove(reading)  # its body's room is for others meanwhile
                await asyncio.sleep(self._hold_s(key))
            await send(message)

        return held

    def _limited(self, connection: HTTPConnection, key: Key) -> ApiError | None:
        """Counts the request: why its key's limits leave no room for it."""
        try:
            self._count(connection, key)
        except ApiError as error:
            return error
        return None

    def _check_headers(self, connection: HTTPConnection) -> float:
        """The bytes that the body is to have; inf: it does not say. Raises: ApiError."""
        coding = connection.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise ApiError(415, "a compressed body is not taken: send it as it is", param="content-encoding")
        told = connection.headers.get("content-length", "")
        size = int(told[:18]) if told.isdigit() else math.inf
        if self._max_bytes < size < math.inf:
            raise self._too_large()
        return size

    async def _whole(self, reading: asyncio.Future[bytes | None]) -> bytes | None:
        """The body, or None where the client left. Raises: ApiError."""
        await asyncio.wait((reading,), timeout=self._timeout_s)
        if not reading.done():
            raise ApiError(408, f"the body was not complete within {self._timeout_s:g} s")
        if reading.cancelled():
            raise ApiError(408, "the body came slowly, and its room was needed for others")
        return reading.result()

    async def _read(self, receive: Receive) -> bytes | None:
        reading = asyncio.current_task()
        assert reading is not None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_bytes:
                raise self._too_large()
            self._held.add(reading, len(parts[-1]))
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_bytes} bytes", code="body_too_large")


class OriginCheck:
    """ASGI middleware: keeps pages of other sites away from a gateway that lets everybody in.

    A page anywhere may have its own name resolved to this machine (DNS rebinding): to its browser the gateway
    is then the page's own server. And without a preflight a page may post forms and plain text anywhere.
    """

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        self._app = app
        self._with_keys = settings.keys is not None
        self._origins = frozenset(settings.cors_origins)
        named = (urlsplit(origin).hostname for origin in settings.cors_origins)
        given = (*settings.allowed_hosts, socket.gethostname())
        self._hosts = {*(name.lower() for name in given), *filter(None, named)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            connection = HTTPConnection(scope)
            try:
                self._check(connection, is_socket=scope["type"] == "websocket")
            except ApiError as error:
                identity = request_id(connection)
                if scope["type"] == "http":
                    await refuse(send, error, identity, close=True)
                else:
                    answer = JSONResponse(error.body, error.status, {"x-request-id": identity})
                    await WebSocket(scope, receive, send).send_denial_response(answer)
                return
        await self._app(scope, receive, send)

    def _check(self, connection: HTTPConnection, *, is_socket: bool) -> None:
        """Raises: ApiError 403. With keys only a WebSocket's origin counts: no page sends a key unasked."""
        host = connection.headers.get("host", "")
        origin = connection.headers.get("origin")
        if {"*", origin} & self._origins:
            return
        if not (self._with_keys or "*" in self._hosts or self._is_ours(host)):
            message = f"who needs no key may not come by the name '{shorten(host)}': see --allowed-host"
            raise ApiError(403, message, code="host_not_allowed")
        if origin is None or origin.partition("://")[2] == host:
            return
        if is_socket or not self._with_keys:
            message = "pages of this origin are not let in: see --cors-origin"
            raise ApiError(403, message, code="origin_not_allowed")

    def _is_ours(self, host: str) -> bool:
        """Whether no page elsewhere can have this name: an address, a name without a dot, a private one."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        name = name.rstrip(".")
        if "." not in name or name.endswith(_PRIVATE) or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body in one message, then what else comes."""
    given = False

    async def whole() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return whole
