"""Refuses requests that are too large, too slow, compressed or of too many values, before any is read."""

from __future__ import annotations

import asyncio

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimodal.gateway.access import request_id
from trimodal.gateway.answering import refuse
from trimodal.gateway.errors import ApiError

# A talk of 1,024 messages, a text and a picture each, has 11,000.
MAX_VALUES = 20_000


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


class BodyLimits:
    """ASGI middleware: bounds the bytes of a body and the seconds until it is there.

    Bodies come uncompressed: one of 4 MB could stand for gigabytes.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        try:
            self._check_headers(connection)
            body = await asyncio.wait_for(self._read(receive), self._timeout_s)
            if body and not connection.headers.get("content-type", "").startswith("multipart/"):
                check_values(body)
        except asyncio.TimeoutError:
            error = ApiError(408, f"the body was not complete within {self._timeout_s:g} s")
            await refuse(send, error, request_id(connection), close=True)
            return
        except ApiError as error:
            await refuse(send, error, request_id(connection), close=True)
            return
        if body is None:  # the client left
            return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, send)

    def _check_headers(self, connection: HTTPConnection) -> None:
        coding = connection.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise ApiError(415, "a compressed body is not taken: send it as it is", param="content-encoding")
        size = connection.headers.get("content-length", "0")
        if size.isdigit() and int(size[:18]) > self._max_bytes:
            raise self._too_large()

    async def _read(self, receive: Receive) -> bytes | None:
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
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_bytes} bytes", code="body_too_large")
