"""Answers one HTTP request while watching for its client to leave; sends server-sent events.

Nothing is sent until the first result is there, so that a refusal has its own HTTP status, also of a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.quota import KeyUsage

Use = Callable[[], AbstractContextManager[KeyUsage]]
Make = Callable[[KeyUsage], Awaitable[tuple[Any, Mapping[str, str]]]]
Events = Callable[[KeyUsage], AsyncIterator[bytes]]

# Silence for so long ends connections in many proxies; a comment is no event to a client.
PING_S = 10.0
# Before the first text there is no head either: a refusal has a status of its own. But no longer than this.
HEAD_S = 30.0
# A revoked key ends its streams within two of these.
_CHECK_S = 0.5
_PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_MARK = "\0"


def event(value: object) -> bytes:
    """One server-sent event with JSON."""
    return b"data: " + encoded(value) + b"\n\n"


def encoded(value: object) -> bytes:
    """JSON as UTF-8; a lone surrogate becomes a question mark."""
    return _JSON.encode(value).encode("utf-8", "replace")


class TextEvents:
    """Makes events that differ in one text only: what stands around it is encoded once.

    Args:
        body: what `event` would be given for a text; nothing after the text may come from a client.
    """

    def __init__(self, body: Callable[[str], object]) -> None:
        self._before, _, self._after = event(body(_MARK)).rpartition(encoded(_MARK))

    def event(self, text: str) -> bytes:
        return self._before + encoded(text) + self._after


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

    async def _cut(self, send: Send) -> None:
        """Tells a client that its answer ends here."""
        if not self._started:
            await refuse(send, _shutting_down(), self._request_id)


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
        self._started = True
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
        self._channel: _Channel | None = None
        self._allowed = allowed
        self._done = done

    async def _work(self, send: Send) -> None:
        channel = self._channel = _Channel(send, self._request_id)
        try:
            with self._use() as usage:
                channel.headers |= usage.headers
                await self._copy(self._events(usage), channel)
        except Exception as problem:
            error = as_api_error(problem, self._request_id)
            if not channel.started:
                await refuse(send, error, self._request_id)
                return
            await channel.write(event(error.body))
        else:
            if self._done:
                await channel.write(DONE)
        await send({"type": "http.response.body", "body": b""})

    async def _cut(self, send: Send) -> None:
        if self._channel is None or not self._channel.started:
            await refuse(send, _shutting_down(), self._request_id)
            return
        # Past the channel, whose last write may have been cut off while it waited for a slow reader.
        body = event(_shutting_down().body)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _copy(self, events: AsyncIterator[bytes], channel: _Channel) -> None:
        """Sends the events as they come. Raises what ends them."""
        copying = asyncio.current_task()
        assert copying is not None
        revoked = False

        async def watch() -> None:
            nonlocal revoked
            while True:
                await asyncio.sleep(_CHECK_S)
                if not self._allowed():
                    revoked = True
                    copying.cancel()
                    return
                await channel.ping()

        watching = asyncio.ensure_future(watch())
        try:
            async for chunk in events:
                await channel.write(chunk)
        except asyncio.CancelledError:
            if not revoked:
                raise
            if sys.version_info >= (3, 11):
                copying.uncancel()
            raise ApiError(401, "this API key was revoked", code="invalid_api_key") from None
        finally:
            watching.cancel()
            await events.aclose()  # type: ignore[attr-defined]  # a generator's


class _Channel:
    """Writes events to the client; the head goes with the first."""

    def __init__(self, send: Send, request_id: str) -> None:
        self.headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-request-id": request_id,
        }
        self.started = False
        self._send = send
        self._sent = time.monotonic()
        self._turn = asyncio.Lock()

    async def write(self, chunk: bytes) -> None:
        async with self._turn:
            if not self.started:
                self.started = True
                await _head(self._send, 200, self.headers)
            self._sent = time.monotonic()
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def ping(self) -> None:
        """Writes a comment after a silence; not to a client that does not read."""
        patience = PING_S if self.started else HEAD_S
        if time.monotonic() - self._sent >= patience and not self._turn.locked():
            await self.write(_PING)


def _shutting_down() -> ApiError:
    return ApiError(503, "the gateway is shutting down", code="shutting_down", retry_after_s=1.0)


async def _ended(work: asyncio.Future[None]) -> None:
    work.cancel()  # nothing where it is done
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _left(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
