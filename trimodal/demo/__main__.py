"""`python -m trimodal.demo [--keep]`: serves the demo engines, runs the acts, stops.

Exit status 0 only when every act was answered, and answered right.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import trimodal
from trimodal.client import Client
from trimodal.demo import acts, assistant, listening, remembering
from trimodal.errors import TrimodalError
from trimodal.server.foreground import summary
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

DEMO = Path(trimodal.__file__).resolve().parents[1] / "build" / "demo"

Act = Callable[[Client, Console], Coroutine[Any, Any, bool]]


async def _text(client: Client, console: Console) -> bool:
    topics = assistant.topics(DEMO)
    good = await acts.text(client, console, topics)
    return await remembering.cache(client, console, topics) and good


ACTS: dict[str, Act] = {
    "text": _text,
    "images": lambda client, console: acts.images(client, console, DEMO / "vision" / "samples"),
    "audio": lambda client, console: listening.speech(client, console, DEMO / "speech" / "samples"),
    "assistant": lambda client, console: assistant.assistant(client, console, DEMO),
}


def main(
    keep: bool = typer.Option(False, help="Stay up on the usual ports (8000, 8001, 8002) until Ctrl-C."),
) -> None:
    """Serve the demo models, run every act, and stop."""
    console = Console(highlight=False)
    # A SIGTERM must take the server along, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
            options = ServerOptions(changes=changes)
            if not keep:
                options = replace(options, http_port=0, grpc_port=0, metrics_port=0)
            with console.status("starting the server and loading the models …"):
                server = stack.enter_context(TritonServer(options))
            console.print(summary(server))
            answered = asyncio.run(_run(server.grpc_url, console))
            if keep:
                console.print(f"Still serving at {server.grpc_url} (gRPC) and http://{server.http_url}.")
                console.print('Try: .venv/bin/trimodal chat "what is a lambda?"   Ctrl-C stops.')
                with contextlib.suppress(KeyboardInterrupt):
                    server.wait(float("inf"))
    except TrimodalError as error:
        print(f"demo: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
    if not keep:
        console.print("Go on with:")
        console.print("  .venv/bin/trimodal serve                       a server on ports 8000 to 8002")
        console.print('  .venv/bin/trimodal chat ["what is a lambda?"]  an answer, or a conversation')
        console.print("  .venv/bin/trimodal classify FILE…              labels of images")
        console.print("  .venv/bin/trimodal transcribe --live FILE      words while they are spoken")
        console.print("  .venv/bin/trimodal ask --audio FILE            a spoken question, answered")
    print(f"demo: {answered} of {len(ACTS)} acts answered")
    raise typer.Exit(0 if answered == len(ACTS) else 1)


async def _run(url: str, console: Console) -> int:
    answered = 0
    async with Client(url) as client:
        for name, act in ACTS.items():
            try:
                good = await act(client, console)
                if not good:
                    print(f"demo: {name}: the answer is not what this model was trained to give")
            except TrimodalError as error:
                print(f"demo: {name}: {error}", file=sys.stderr)
                good = False
            answered += good
    return answered


if __name__ == "__main__":
    typer.run(main)
