"""Ways to ask for a streamed answer: over gRPC, and over HTTP in OpenAI's form through plain sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from trimodal.client import Client, Message
from trimodal.errors import ServerError

CHAT: list[Message] = [{"role": "user", "content": "what is a lambda?"}]
_LIMIT_S = 60.0
# A delta with text, in the bytes of the stream; the first chunk, with the role, has an empty one.
_TEXT = re.compile(rb'"content": ?"[^"]')
# Ends a chunked body. An event ends in line feeds: its bytes cannot look like this.
_END = b"\r\n0\r\n\r\n"


@dataclass
class Run:
    """One answer: when it was asked for, and when text came with how many deltas, in seconds."""

    asked: float = field(default_factory=time.perf_counter)
    texts: list[tuple[float, int]] = field(default_factory=list)

    def note(self, deltas: int) -> None:
        self.texts.append((time.perf_counter(), deltas))

    @property
    def ttft(self) -> float:
        """Raises: ServerError where no text came."""
        if not self.texts:
            raise ServerError("an answer had no text")
        return self.texts[0][0] - self.asked


# Asks for so many tokens, on one connection.
Ask = Callable[[int], Awaitable[Run]]


@dataclass(frozen=True)
class Way:
    """`open` makes a connection; `pid`: whose processor time is read; `after`: the way that it adds to."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Ask]]
    pid: int | None = None
    after: Way | None = None


def over_grpc(client: Client) -> Callable[[], AbstractAsyncContextManager[Ask]]:
    """Through the project's client, whose few connections all streams share."""

    async def ask(tokens: int) -> Run:
        run = Run()
        async with client.stream(messages=CHAT, max_tokens=tokens) as stream:
            async for delta in stream:
                if delta.text:
                    run.note(1)
        return run

    @asynccontextmanager
    async def opened() -> AsyncIterator[Ask]:
        yield ask

    return opened


def over_http(url: str, model: str = "llm") -> Callable[[], AbstractAsyncContextManager[Ask]]:
    """To /v1/chat/completions at `url`, "http://host:port", on a connection that is kept alive."""
    address = urlsplit(url)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Ask]:
        try:
            reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
        except OSError as error:
            raise ServerError(f"nobody listens at {url}: {error}") from None

        async def ask(tokens: int) -> Run:
            body = json.dumps({"model": model, "messages": CHAT, "max_tokens": tokens, "stream": True})
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            run = Run()
            writer.write((head + body).encode())
            await asyncio.wait_for(_read(reader, run), _LIMIT_S)
            return run

        try:
            yield ask
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return opened


async def _read(reader: asyncio.StreamReader, run: Run) -> None:
    """Takes in one answer. Raises: ServerError when it is no whole stream."""
    begun = end = b""
    while not end.endswith(_END):
        data = await reader.read(65_536)
        if not data:
            raise ServerError(f"the connection was closed in an answer: {begun[:200]!r}")
        if count := len(_TEXT.findall(data)):
            run.note(count)
        begun = begun or data
        if not begun.startswith(b"HTTP/1.1 200 "):
            raise ServerError(f"no stream of text: {begun[:200]!r}")
        end = (end + data)[-len(_END) :]
