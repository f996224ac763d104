"""Answers one HTTP request while watching for its client to leave; sends server-sent events.

Nothing is sent until the first result is there, so that a refusal has its own HTTP status, also of a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.quota import KeyUsage

Result = TypeVar("Result")
Use = Callable[[], AbstractContextManager[KeyUsage]]
Make = Callable[[KeyUsage], Awaitable[tuple[Any, Mapping[str, str]]]]
Events = Callable[[KeyUsage], AsyncIterator[bytes]]

# Silence for so long ends connections in many proxies; a comment is no event to a client.
PING_S = 10.0
# Before the first text there is no head either: a refusal has a status of its own. But no longer than this.
HEAD_S = 30.0
# A revoked key ends its requests within two of these.
_CHECK_S = 0.5
_PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def event(value: object) -> bytes:
    """One server-sent event with JSON."""
    return b"data: " + encoded(value) + b"\n\n"


def encoded(value: object) -> bytes:
    """JSON as UTF-8; a lone surrogate becomes a question mark."""
    return _JSON.encode(value).encode("utf-8", "replace")


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


@dataclass(frozen=True)
class Terms:
    """On what terms one request is answered.

    Attributes:
        use: counts the request while it runs.
        allowed: asked twice a second; False (the key was revoked) ends the work with an error.
        own_name: see `as_api_error`.
    """

    request_id: str
    use: Use
    allowed: Callable[[], bool]
    own_name: Callable[[str], str] = str


class Answering(Response):
    """A response that does the work itself, counted by its terms, and ends it when the client leaves."""

    def __init__(self, terms: Terms) -> None:
        super().__init__()
        self._terms = terms
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._work(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the gateway's drain has taken as long as it may
            await _ended(work)
            if not leaving.done():
                await self._cut(send)
            raise
        finally:
            leaving.cancel()
            await _ended(work)

    async def _work(self, send: Send) -> None:
        raise NotImplementedError

    def _told(self, error: Exception) -> ApiError:
        return as_api_error(error, self._terms.request_id, self._terms.own_name)

    async def _while_allowed(
        self, work: Awaitable[Result], meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> Result:
        """What the work returns; twice a second `meanwhile` is done. Raises: ApiError 401, what it raises."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=_CHECK_S))[0]:
                if not self._terms.allowed():
                    raise ApiError(401, "this API key was revoked", code="invalid_api_key")
                if meanwhile:
                    await meanwhile()
            return task.result()
        finally:
            if not task.done():
                await _ended(task)
            elif not task.cancelled():
                task.exception()  # looked at: the client may have left in the moment when it failed

    async def _cut(self, send: Send) -> None:
        """Tells a client that its answer ends here."""
        if not self._started:
            await refuse(send, _shutting_down(), self._terms.request_id)


class WholeAnswer(Answering):
    """JSON, or text of another type, made by one call: content (bytes stay as they are) and headers."""

    def __init__(self, make: Make, terms: Terms, content_type: str = "application/json") -> None:
        super().__init__(terms)
        self._make = make
        self._content_type = content_type

    async def _work(self, send: Send) -> None:
        try:
            with self._terms.use() as usage:
                content, more = await self._while_allowed(self._make(usage))
                raw = content if isinstance(content, bytes) else encoded(content)
        except Exception as error:
            await refuse(send, self._told(error), self._terms.request_id)
            return
        size = {"content-type": self._content_type, "content-length": str(len(raw))}
        self._started = True
        await _head(send, 200, {**size, "x-request-id": self._terms.request_id, **usage.headers, **more})
        await send({"type": "http.response.body", "body": raw})


class EventAnswer(Answering):
    """Server-sent events; the head goes with the first.

    Args:
        done: whether "[DONE]" ends it, as OpenAI's completions do.
    """

    def __init__(self, events: Events, terms: Terms, *, done: bool = True) -> None:
        super().__init__(terms)
        self._events = events
        self._done = done
        self._event_headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-request-id": terms.request_id,
        }
        self._sent = time.monotonic()
        self._turn = asyncio.Lock()

    async def _work(self, send: Send) -> None:
        try:
            with self._terms.use() as usage:
                self._event_headers |= usage.headers
                await self._while_allowed(self._copy(self._events(usage), send), partial(self._ping, send))
        except Exception as problem:
            error = self._told(problem)
            if not self._started:
                await refuse(send, error, self._terms.request_id)
                return
            await self._write(send, event(error.body))
        else:
            if self._done:
                await self._write(send, DONE)
        await send({"type": "http.response.body", "body": b""})

    async def _cut(self, send: Send) -> None:
        await super()._cut(send)
        if self._started:
            # Without the lock: the last write may have been cut off while it waited for a slow reader.
            body = event(_shutting_down().body)
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _copy(self, events: AsyncIterator[bytes], send: Send) -> None:
        """Sends the events as they come. Raises what ends them."""
        try:
            async for chunk in events:
                await self._write(send, chunk)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # a generator's

    async def _ping(self, send: Send) -> None:
        """Sends a comment after a silence; not to a client that does not read."""
        patience = PING_S if self._started else HEAD_S
        if time.monotonic() - self._sent >= patience and not self._turn.locked():
            await self._write(send, _PING)

    async def _write(self, send: Send, chunk: bytes) -> None:
        async with self._turn:
            if not self._started:
                self._started = True
                await _head(send, 200, self._event_headers)
            self._sent = time.monotonic()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _shutting_down() -> ApiError:
    return ApiError(503, "the gateway is shutting down", code="shutting_down", retry_after_s=1.0)


async def _ended(work: asyncio.Future[Any]) -> None:
    work.cancel()  # nothing where it is done
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _left(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
