"""Answers one HTTP request while watching for its client to leave; sends server-sent events.

Nothing is sent before the first result is there, so that a refusal has its own HTTP status, also of a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.quota import Usage

Use = Callable[[], AbstractContextManager[Usage]]
Make = Callable[[Usage], Awaitable[tuple[Any, Mapping[str, str]]]]
Events = Callable[[Usage], AsyncIterator[bytes]]

# Silence for so long ends connections in many proxies; a comment is no event to a client.
PING_S = 10.0
# A revoked key ends its streams within two of these.
_CHECK_S = 0.5
_PING = b": ping\n\n"
_DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    """One server-sent event with JSON."""
    return b"data: " + encoded(value) + b"\n\n"


def encoded(value: object) -> bytes:
    """JSON as UTF-8; a lone surrogate becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


async def refuse(send: Send, error: ApiError, request_id: str, *, close: bool = False) -> None:
    """Sends an error as the whole answer; `close`: what may still come of the request is not read."""
    body = encoded(error.body)
    size = {"content-type": "application/json", "content-length": str(len(body))}
    closing = {"connection": "close"} if close else {}
    await _head(send, error.status, {**size, "x-request-id": request_id, **error.headers, **closing})
    await send({"type": "http.response.body", "body": body})


async def _head(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


class Answering(Response):
    """A response that does the work itself, and ends it when the client leaves.

    Args:
        use: counts the request while it runs; refuses it when its key has no room.
    """

    def __init__(self, request_id: str, use: Use) -> None:
        super().__init__()
        self._request_id = request_id
        self._use = use

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            work.cancel()  # nothing where it is done
            with contextlib.suppress(asyncio.CancelledError):
                await work

    async def _work(self, send: Send) -> None:
        raise NotImplementedError


class WholeAnswer(Answering):
    """JSON, or text of another type, made by one call: content (bytes stay as they are) and headers."""

    def __init__(self, make: Make, request_id: str, use: Use, content_type: str = "application/json") -> None:
        super().__init__(request_id, use)
        self._make = make
        self._content_type = content_type

    async def _work(self, send: Send) -> None:
        try:
            with self._use() as usage:
                content, more = await self._make(usage)
                raw = content if isinstance(content, bytes) else encoded(content)
        except Exception as error:
            await refuse(send, as_api_error(error, self._request_id), self._request_id)
            return
        size = {"content-type": self._content_type, "content-length": str(len(raw))}
        await _head(send, 200, {**size, "x-request-id": self._request_id, **usage.headers, **more})
        await send({"type": "http.response.body", "body": raw})


class EventAnswer(Answering):
    """Server-sent events.

    Args:
        events: makes encoded events; closed when the client leaves.
        allowed: asked twice a second; False (the key was revoked) ends the stream with an error.
        done: whether "[DONE]" ends it, as OpenAI's completions do.
    """

    def __init__(
        self, events: Events, request_id: str, use: Use, *, allowed: Callable[[], bool], done: bool = True
    ) -> None:
        super().__init__(request_id, use)
        self._events = events
        self._allowed = allowed
        self._done = done

    async def _work(self, send: Send) -> None:
        started = False
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-request-id": self._request_id,
        }

        async def write(chunk: bytes) -> None:
            nonlocal started
            if not started:
                started = True
                await _head(send, 200, headers)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        try:
            with self._use() as usage:
                headers |= usage.headers
                await self._copy(self._events(usage), write)
        except Exception as problem:
            error = as_api_error(problem, self._request_id)
            if not started:
                await refuse(send, error, self._request_id)
                return
            await write(event(error.body))
        else:
            if self._done:
                await write(_DONE)
        await send({"type": "http.response.body", "body": b""})

    async def _copy(self, events: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]) -> None:
        """Sends the events as they come, pings while none does. Raises what ends them."""
        loop = asyncio.get_running_loop()
        coming: asyncio.Future[bytes] | None = None
        try:
            checked = sent = loop.time()
            while True:
                coming = coming or asyncio.ensure_future(anext(events))
                await asyncio.wait((coming,), timeout=_CHECK_S)
                now = loop.time()
                if now - checked >= _CHECK_S:
                    checked = now
                    if not self._allowed():
                        raise ApiError(401, "this API key was revoked", code="invalid_api_key")
                if coming.done():
                    finished, coming = coming, None
                    try:
                        chunk = finished.result()
                    except StopAsyncIteration:
                        return
                    await write(chunk)
                    sent = now
                elif now - sent >= PING_S:
                    await write(_PING)
                    sent = now
        finally:
            if coming is not None:
                coming.cancel()
                with contextlib.suppress(BaseException):
                    await coming
            await events.aclose()  # type: ignore[attr-defined]  # a generator's


async def _left(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
