"""Serves the demo engines, runs every act against the server, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from openai import AsyncOpenAI, OpenAIError
from rich.console import Console

from trimodal.client import Client
from trimodal.demo import acts, assistant, listening
from trimodal.errors import TrimodalError
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings
from trimodal.paths import data_directory, default_engines, is_wheel
from trimodal.server.foreground import summary
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

DEMO = data_directory() / "build" / "demo"
GATEWAY_PORT = 8080


@dataclass(frozen=True)
class Doors:
    """The two ways into the server: OpenAI's API at the gateway, and Triton's gRPC."""

    api: AsyncOpenAI
    client: Client


Act = Callable[[Doors, Console], Coroutine[Any, Any, bool]]


ACTS: dict[str, Act] = {
    "text": lambda doors, console: acts.text(doors.api, console, assistant.topics(DEMO)),
    "images": lambda doors, console: acts.images(doors.api, console, DEMO / "vision" / "samples"),
    "audio": lambda doors, console: listening.speech(
        doors.api, doors.client, console, DEMO / "speech" / "samples"
    ),
    "assistant": lambda doors, console: assistant.assistant(doors.api, console, DEMO),
}


def run(console: Console, *, keep: bool) -> int:
    """Returns how many of ACTS were answered right; `keep` stays up on the usual ports until Ctrl-C."""
    answered = 0
    try:
        with contextlib.ExitStack() as stack:
            # A store of its own: nothing that was answered before, and nothing left behind.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trimodal-demo-"))
            # Generous budgets: a laptop that does other things must not miss its own hits.
            changes = {
                "llm": {
                    "cache": "semantic",
                    "cache_store": f"{folder}/answers.sqlite",
                    "cache_budget_ms": "500",
                    "cache_embedding_budget_ms": "2000",
                }
            }
            # The demo's own models, also where a repository lies in the working directory.
            options = ServerOptions(
                repository=data_directory() / "model_repository",
                engines=None if is_wheel() else default_engines(),
                changes=changes,
            )
            if not keep:
                options = replace(options, http_port=0, grpc_port=0, metrics_port=0)
            with console.status("starting the server and loading the models …"):
                server = stack.enter_context(TritonServer(options))
            console.print(summary(server))
            settings = GatewaySettings(upstream=server.grpc_url, port=GATEWAY_PORT if keep else 0)
            gateway = GatewayServer(settings)
            url = gateway.listen()
            stack.enter_context(gateway.serving())
            console.print(f"OpenAI  {url}/v1: what the demo asks, with the package openai\n")
            answered = asyncio.run(_run(url, server.grpc_url, console))
            if keep:
                console.print(f"Still serving at {url} (OpenAI's API, and a page for your browser),")
                console.print(f"{server.grpc_url} (gRPC) and http://{server.http_url}. Ctrl-C stops.")
                with contextlib.suppress(KeyboardInterrupt):
                    server.wait(float("inf"))
    except TrimodalError as error:
        console.print(f"demo: {error}", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("demo: stopped")
    return answered


async def _run(url: str, grpc_url: str, console: Console) -> int:
    answered = 0
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as api, Client(grpc_url) as client:
        doors = Doors(api, client)
        for name, act in ACTS.items():
            try:
                good = await act(doors, console)
                if not good:
                    console.print(f"demo: {name}: the answer is not what this model was trained to give")
            except (TrimodalError, OpenAIError) as error:
                console.print(f"demo: {name}: {error}", markup=False, soft_wrap=True)
                good = False
            answered += good
    return answered
