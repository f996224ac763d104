"""Looks at requests before they are read: where they come from, their key, their bytes, values and time."""

from __future__ import annotations

import asyncio
import codecs
import ipaddress
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from trimodal.gateway.access import Access, request_id
from trimodal.gateway.answering import refuse
from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import Key
from trimodal.gateway.settings import GatewaySettings
from trimodal.settings import shorten

# A talk of 1,024 messages, a text and a picture each, has 11,000.
MAX_VALUES = 20_000
# Bodies of the largest size that may be held at once, whole ones of requests that run included.
HELD_BODIES = 8
# Of one key, while requests or sessions of other keys are there: at once, then a second.
BURST_BYTES, BODY_BYTES_PER_S = 4 << 20, 8 << 20
_FREE_BYTES = 64 << 10  # of a body, that never wait: an ordinary one has no more
# Bytes of a body that is read although it is refused: a client that still sends would have its connection
# reset, and not see why.
_READ_ANYWAY = 1 << 20
Read = bytes | ApiError | None
"""A body, or why it is refused; None: its client left."""
_WITHOUT_BODY = {"GET", "HEAD", "OPTIONS"}
# Ends of names that no public server gives out.
_PRIVATE = (".localhost", ".local", ".internal", ".home.arpa", ".svc", ".cluster.local")


class JsonText:
    """Bounds a JSON text while it comes, piece by piece: its coding, and how many values there are in it.

    A megabyte can hold 300,000. pydantic (2.14) goes on after the first wrong one and makes an error for
    each: everybody else waited for seconds. Of a whole text it took 15 ms to count them, in which nobody was
    answered. Python's json reads UTF-16 and UTF-32 too, in which other signs would be counted than it reads:
    both have zero bytes, or are no UTF-8.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._values = self._quotes = 0
        self._escape = b""  # the first half of one that is not whole yet

    def add(self, raw: bytes, *, last: bool = False) -> None:
        """Raises: ApiError 400."""
        try:
            if b"\0" in raw:
                raise UnicodeError
            if last or not raw.isascii() or self._decoder.getstate()[0]:
                self._decoder.decode(raw, last)
        except UnicodeError:
            raise ApiError(400, "the body is not JSON in UTF-8", code="invalid_json") from None
        # Every value but the outermost has one of these before it.
        text = (self._escape + raw).replace(b"\\\\", b"")
        self._escape = b"\\" if text.endswith(b"\\") else b""
        text = text.replace(b'\\"', b"")
        inside = self._quotes % 2
        self._quotes += text.count(b'"')
        if self._quotes <= 4 * MAX_VALUES:  # a value and its name have two each
            outside = b"".join(text.split(b'"')[inside::2])
            self._values += len(outside) - len(outside.translate(None, b",[{"))
        if self._quotes > 4 * MAX_VALUES or self._values > MAX_VALUES:
            raise ApiError(400, f"the JSON has more than {MAX_VALUES} values", code="too_many_values")


class _Held:
    """The bytes of all bodies that are held. Of one event loop: it has no lock.

    Where they would be too many, the body that is on its way for longest is ended: one that comes slowly on
    purpose keeps nobody out.
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._sizes: dict[asyncio.Future[Read], int] = {}  # oldest first

    def add(self, body: asyncio.Future[Read], size: int) -> None:
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

    def remove(self, body: asyncio.Future[Read]) -> None:
        self._left += self._sizes.pop(body, 0)


class _Pace:
    """Slows the bodies of a key while requests or sessions of other keys are there, each piece in its turn.

    What becomes of one is done in the same event loop as everybody's tokens: 24 of 200 kB at once made others
    wait six times as long. What waits is small, and may be ended for others' room.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._present: Counter[str] = Counter()
        self._due: dict[str, float] = {}

    @contextmanager
    def present(self, key: Key) -> Iterator[None]:
        """Counts a request or a session of the key while it is there."""
        self._present[key.hash] += 1
        try:
            yield
        finally:
            self._present[key.hash] -= 1
            if not self._present[key.hash]:
                del self._present[key.hash]

    def wait_s(self, key: Key, size: int) -> float:
        """Seconds until a piece of this size, which is counted now, may go on."""
        if len(self._present) < 2:
            return 0.0
        now = self._clock()
        at = max(self._due.get(key.hash, -math.inf), now - BURST_BYTES / BODY_BYTES_PER_S)
        self._due[key.hash] = at + size / BODY_BYTES_PER_S
        return max(0.0, self._due[key.hash] - now)


class BodyLimits:
    """ASGI middleware: bounds the bytes of a body, those of all together, and the seconds until it is there.

    Bodies come uncompressed: one of 4 MB could stand for gigabytes. The key and its limits are looked at
    before a body is read, which counts also where it turns out wrong or never comes.
    """

    def __init__(self, app: ASGIApp, access: Access, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._access = access
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._held = _Held(HELD_BODIES * max_bytes)
        self._pace = _Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope.get("method") in _WITHOUT_BODY:
            await self._app(scope, receive, send)  # no handler of these reads one
            return
        connection = HTTPConnection(scope)
        with ExitStack() as present:
            if scope["type"] == "websocket":
                with suppress(ApiError):  # its handler tells it
                    present.enter_context(self._pace.present(self._access.identify(connection).key))
                await self._app(scope, receive, send)
            else:
                await self._bounded(connection, receive, send, present)

    async def _bounded(
        self, connection: HTTPConnection, receive: Receive, send: Send, present: ExitStack
    ) -> None:
        scope = connection.scope
        reading: asyncio.Future[Read] | None = None
        whole = False
        try:
            try:
                caller = self._access.identify(connection)
                present.enter_context(self._pace.present(caller.key))
                size = self._check_headers(connection)
                limited = self._access.limited(connection, caller.key, size)
                if limited:
                    await asyncio.sleep(self._access.quota.refusal_wait_s(caller.key))
                if limited and _READ_ANYWAY < size < math.inf:
                    raise limited
                form = connection.headers.get("content-type", "").lower().startswith("multipart/")
                text = None if form else JsonText()
                reading = asyncio.ensure_future(self._read(receive, caller.key, text, limited))
                body = await self._whole(reading)
                whole = True
                if isinstance(body, ApiError):
                    raise body
                if body and not form:
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

    def _holding(self, key: Key, reading: asyncio.Future[Read], send: Send) -> Send:
        async def held(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 429:
                self._held.remove(reading)  # its body's room is for others meanwhile
                await asyncio.sleep(self._access.quota.refusal_wait_s(key))
            await send(message)

        return held

    def _check_headers(self, connection: HTTPConnection) -> float:
        """The bytes that the body is to have; inf: it does not say. Raises: ApiError."""
        coding = connection.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise ApiError(415, "a compressed body is not taken: send it as it is", param="content-encoding")
        none = "" if "transfer-encoding" in connection.headers else "0"
        told = connection.headers.get("content-length", none)
        size = int(told[:18]) if told.isdigit() else math.inf
        if self._max_bytes < size < math.inf:
            raise self._too_large()
        return size

    async def _whole(self, reading: asyncio.Future[Read]) -> Read:
        """What was read, to its end. Raises: ApiError."""
        await asyncio.wait((reading,), timeout=self._timeout_s)
        if not reading.done():
            raise ApiError(408, f"the body was not complete within {self._timeout_s:g} s")
        if reading.cancelled():
            raise ApiError(408, "the body came slowly, and its room was needed for others")
        return reading.result()

    async def _read(
        self, receive: Receive, key: Key, text: JsonText | None, refusal: ApiError | None
    ) -> Read:
        """Reads a body; a short one that is refused to its end as well, but keeps nothing of it.

        Args:
            text: bounds it, unless it is a form.

        Raises: ApiError.
        """
        reading = asyncio.current_task()
        assert reading is not None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > self._max_bytes:
                raise self._too_large()
            try:
                if text and not refusal:
                    text.add(part, last=not more)
            except ApiError as error:
                refusal = error
                parts.clear()
                self._held.remove(reading)
            if refusal and more and size > _READ_ANYWAY:
                raise refusal
            if not refusal:
                self._held.add(reading, len(part))
                parts.append(part)
                wait_s = self._pace.wait_s(key, len(part))
                if size > _FREE_BYTES and wait_s and not await _stays(receive, wait_s, whole=not more):
                    return None
            if not more:
                return refusal or b"".join(parts)

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
        """Raises: ApiError. With keys only a WebSocket's origin counts: no page sends a key unasked."""
        for name in ("host", "authorization"):
            if len(connection.headers.getlist(name)) > 1:  # a proxy may have looked at the other one
                raise ApiError(400, f"{name} is given more than once", param=name)
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


async def _stays(receive: Receive, wait_s: float, *, whole: bool) -> bool:
    """Waits; False: the client left. Until its body is whole, to know that more of it would be read."""
    if not whole:
        await asyncio.sleep(wait_s)
        return True
    leaving = asyncio.ensure_future(receive())
    try:
        return not (await asyncio.wait((leaving,), timeout=wait_s))[0]
    finally:
        leaving.cancel()


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
