"""Plays the acts through a gateway, one after the other."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAIError
from rich.console import Console
from websockets.exceptions import WebSocketException

from trimodal.demo import acts, assistant, listening
from trimodal.errors import TrimodalError
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings

Act = Callable[[AsyncOpenAI, Console], Coroutine[Any, Any, bool]]


def acts_of(samples: Path, *, judged: bool) -> dict[str, Act]:
    """Name → act, in their order. `judged`: the cache has its semantic layer."""
    return {
        "chat": acts.chat,
        "streams": acts.burst,
        "cache": lambda api, console: acts.cache(api, console, judged=judged),
        "photos": lambda api, console: acts.photos(api, console, samples / "photos"),
        "recording": lambda api, console: listening.recording(api, console, samples / "speech"),
        "captions": lambda api, console: listening.captions(api, console, samples / "speech"),
        "assistant": lambda api, console: assistant.assistant(api, console, samples),
    }


class Play:
    """The acts, and a gateway of their own for a server that may still be loading.

    Args:
        port: listens already; None: a free one is picked.
    """

    def __init__(self, upstream: str, port: socket.socket | None, console: Console) -> None:
        # Its log would stand between the acts.
        self._gateway = GatewayServer(GatewaySettings(upstream=(upstream,), port=0, log_requests=0))
        self._port = port
        self._console = console

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves the gateway while the block lasts; its URL. Raises: ServerError."""
        url = self._gateway.listen(self._port)
        with self._gateway.serving():
            yield url

    async def run(self, url: str, samples: Path, *, judged: bool) -> int:
        """Plays all acts; returns how many were right."""
        console, right = self._console, 0
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as api:
            for name, act in acts_of(samples, judged=judged).items():
                try:
                    good = await act(api, console)
                    if not good:
                        console.print(f"demo: {name}: not right by the rule above")
                except (TrimodalError, OpenAIError, WebSocketException, OSError) as error:
                    console.print(f"demo: {name}: {error}", markup=False, soft_wrap=True)
                    good = False
                right += good
        return right
