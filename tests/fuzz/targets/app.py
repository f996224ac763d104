"""The gateway's application in this process, in front of fakes: asked without a socket."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.gateway.conftest import fake_triton
from trimodal.client.transports.fake import scripted
from trimodal.gateway.app import make_app
from trimodal.gateway.settings import GatewaySettings
from trimodal.gateway.upstreams.pool import Upstreams

LIMIT_S = 20.0
T = TypeVar("T")


@dataclass
class Reply:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


class App:
    """One application and the event loop that it runs in; `failed`: what a handler let through."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        settings = GatewaySettings(port=0, max_body_bytes=1 << 20)
        triton = fake_triton(llm=scripted("An answer.", step=0.0))
        self.triton = triton
        upstreams = Upstreams(settings.upstream, lambda address: triton)
        self.app = make_app(settings, upstreams)
        self._lifespan = self.app.router.lifespan_context(self.app)
        self.run(self._lifespan.__aenter__())
        atexit.register(self.close)

    def close(self) -> None:
        self.run(self._lifespan.__aexit__(None, None, None))
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it to its end, at most LIMIT_S seconds."""
        return self._loop.run_until_complete(asyncio.wait_for(work, LIMIT_S))

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Sends a request in one piece; its answer when it is whole."""
        reply = Reply()
        given = [
            (name.lower().encode("latin-1", "replace"), one.encode("latin-1", "replace"))
            for name, one in headers.items()
        ]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": given,
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        ended = asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply.status, reply.headers = message["status"], dict(message["headers"])
            else:
                reply.body += message.get("body", b"")
                if not message.get("more_body", False):
                    ended.set()

        async def ask() -> None:
            with suppress(Exception):  # told by the status: starlette raises what it has answered with 500
                await self.app(scope, receive, send)

        self.run(ask())
        del self.triton.requests[:]
        return reply
