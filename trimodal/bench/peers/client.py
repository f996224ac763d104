"""Asks a peer over HTTP: streamed answers as server-sent events, everything else as one body."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from trimodal.client.timing import Stopwatch, Timing
from trimodal.errors import ServerError

if TYPE_CHECKING:
    import httpx

LIMIT_S = 900.0


class Peer(AbstractAsyncContextManager["Peer"]):
    """A peer that listens at `url`; `why` gives what it wrote last, for sentences about its failure.

    All calls raise ServerError: it does not answer, or not as it should.
    """

    pid: int

    def __init__(
        self,
        name: str,
        url: str,
        why: Callable[[], str],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        import httpx

        self._name = name
        self._why = why
        self._failures = (httpx.HTTPError,)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        # Of a shell's proxies (trust_env) none leads to this machine.
        self._http = httpx.AsyncClient(
            base_url=url, timeout=LIMIT_S, limits=limits, transport=transport, trust_env=False
        )

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: bytes) -> Any:
        """Sends the body; returns the JSON that came back."""
        try:
            response = await self._http.post(path, content=body)
        except self._failures as error:
            raise self._broken(error) from None
        self._check(response.status_code)
        return response.json()

    async def generate(self, token_ids: Sequence[int], max_tokens: int) -> Timing:
        """Streams the answer to a prompt, which has exactly `max_tokens` tokens; returns its times."""
        tokens = None
        asked = {"token_ids": list(token_ids), "max_tokens": max_tokens}
        watch = Stopwatch()
        try:
            async with self._http.stream("POST", "/generate", json=asked) as response:
                self._check(response.status_code)
                async for event in events(response.aiter_lines()):
                    if event.get("text"):
                        watch.text()
                    tokens = event.get("tokens", tokens)
        except self._failures as error:
            raise self._broken(error) from None
        watch.end()
        if tokens != max_tokens:
            raise ServerError(f"the {self._name} made {tokens} of {max_tokens} tokens: {self._why()}")
        return watch.read(max_tokens)

    def _check(self, status: int) -> None:
        if status != 200:
            raise ServerError(f"the {self._name} answered with HTTP status {status}: {self._why()}")

    def _broken(self, error: Exception) -> ServerError:
        return ServerError(f"the {self._name} does not answer ({type(error).__name__}): {self._why()}")


async def events(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """Yields the JSON objects of a stream of server-sent events, up to its `[DONE]`."""
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        yield json.loads(data)
