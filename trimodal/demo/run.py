"""Serves the starter set, runs every act against the server, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAIError
from rich.console import Console
from websockets.exceptions import WebSocketException

from trimodal.demo import acts, assistant, listening
from trimodal.errors import TrimodalError
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings
from trimodal.paths import data_directory, judge_artefact
from trimodal.server.foreground import show_summary
from trimodal.server.options import FREE_PORTS, ServerOptions
from trimodal.server.process import TritonServer

REPOSITORY = data_directory() / "model_repository"
SAMPLES = data_directory() / "samples"
GATEWAY_PORT = 8080


Act = Callable[[AsyncOpenAI, Console], Coroutine[Any, Any, bool]]

ACTS: dict[str, Act] = {
    "chat": acts.chat,
    "streams": acts.burst,
    "cache": lambda api, console: acts.cache(api, console, judged=has_judge()),
    "photos": lambda api, console: acts.photos(api, console, SAMPLES / "photos"),
    "recording": lambda api, console: listening.recording(api, console, SAMPLES / "speech"),
    "captions": lambda api, console: listening.captions(api, console, SAMPLES / "speech"),
    "assistant": lambda api, console: assistant.assistant(api, console, SAMPLES),
}


def has_judge() -> bool:
    """Whether the semantic cache's judge is there: a wheel has it in a package of its own."""
    return judge_artefact(REPOSITORY / "judge" / "1", "onnx-int8").is_dir()


def run(console: Console, engines: Path | None, *, keep: bool) -> int:
    """Returns how many of ACTS were answered right; `keep` stays up on the usual ports until Ctrl-C.

    `engines` is where they lie; None: in the repository.
    """
    answered = 0
    try:
        with contextlib.ExitStack() as stack:
            # A store of its own: nothing that was answered before, and nothing left behind.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trimodal-demo-"))
            # Generous budgets: a laptop that does other things must not miss its own hits.
            changes = {
                "llm": {
                    "cache": "semantic" if has_judge() else "exact",
                    "cache_store": f"{folder}/answers.sqlite",
                    "cache_budget_ms": "500",
                    "cache_embedding_budget_ms": "2000",
                    "cache_judge_budget_ms": "2000",
                }
            }
            # The demo's own models, also where a repository lies in the working directory.
            ports = {} if keep else FREE_PORTS
            options = ServerOptions(repository=REPOSITORY, engines=engines, changes=changes, **ports)
            with console.status("starting the server and loading the models …"):
                server = stack.enter_context(TritonServer(options))
            show_summary(server, console)
            # Its log would stand between the acts.
            port = GATEWAY_PORT if keep else 0
            settings = GatewaySettings(upstream=(server.grpc_url,), port=port, log_requests=0)
            gateway = GatewayServer(settings)
            url = gateway.listen()
            stack.enter_context(gateway.serving())
            console.print(f"OpenAI  {url}/v1: what the demo asks, with the package openai\n")
            answered = asyncio.run(_run(url, console))
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


async def _run(url: str, console: Console) -> int:
    answered = 0
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as api:
        for name, act in ACTS.items():
            try:
                good = await act(api, console)
                if not good:
                    console.print(f"demo: {name}: not right by the rule above")
            except (TrimodalError, OpenAIError, WebSocketException, OSError) as error:
                console.print(f"demo: {name}: {error}", markup=False, soft_wrap=True)
                good = False
            answered += good
    return answered
