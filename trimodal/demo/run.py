"""Serves the starter set, runs every act against the server, and stops it.

The acts, and what they import, come while the models load.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from trimodal.errors import ServerError, TrimodalError, refused_by_system
from trimodal.paths import data_directory, judge_artefact
from trimodal.server.foreground import show_summary
from trimodal.server.options import FREE_PORTS, ServerOptions
from trimodal.server.ports import PortInUse, listen
from trimodal.server.process import TritonServer

if TYPE_CHECKING:
    from trimodal.demo.play import Play

REPOSITORY = data_directory() / "model_repository"
SAMPLES = data_directory() / "samples"
HOST, GATEWAY_PORT = "127.0.0.1", 8080
ACTS = ("chat", "streams", "cache", "photos", "recording", "captions", "assistant")


def has_judge() -> bool:
    """Whether the semantic cache's judge is there: a wheel has it in a package of its own."""
    return judge_artefact(REPOSITORY / "judge" / "1", "onnx-int8").is_dir()


def run(console: Console, engines: Path | None, *, keep: bool) -> int | None:
    """Plays the ACTS; `keep` stays up on the usual ports until Ctrl-C.

    Args:
        engines: where they lie; None: in the repository.

    Returns: how many were right; None: it ended before it was to, and why was printed.
    """
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
            # Taken before the models load, which takes long.
            gateway = stack.enter_context(listen(HOST, GATEWAY_PORT)) if keep else None
            options = ServerOptions(repository=REPOSITORY, engines=engines, changes=changes, **ports)
            server = TritonServer(options)
            stack.push(server)
            plays: list[Play] = []

            def prepare() -> None:
                from trimodal.demo.play import Play

                plays.append(Play(server.grpc_url, gateway, console))

            with console.status("starting the server and loading the models …"):
                server.start(meanwhile=prepare)
            show_summary(server, console)
            play = plays[-1]
            url = stack.enter_context(play.serving())
            console.print(f"OpenAI  {url}/v1: what the demo asks, with the package openai\n")
            right = asyncio.run(play.run(url, SAMPLES, judged=has_judge()))
            if keep and server.alive:
                console.print(f"Still serving at {url} (OpenAI's API, and a page for your browser),")
                console.print(f"{server.grpc_url} (gRPC) and http://{server.http_url}. Ctrl-C stops.")
                with contextlib.suppress(KeyboardInterrupt):
                    server.wait(float("inf"))
            if not server.alive:
                problem = f"tritonserver ended by itself (exit status {server.wait(0)})"
                raise ServerError(f"{problem}\nlog: {server.log_path}")
        return right
    except PortInUse as error:
        told = f"demo: {error.problem}: end what listens there, or leave out --keep"
        console.print(told, markup=False, soft_wrap=True)
    except TrimodalError as error:
        console.print(f"demo: {error}", markup=False, soft_wrap=True)
    except OSError as error:
        console.print(f"demo: {refused_by_system(error)}", markup=False, soft_wrap=True)
    except KeyboardInterrupt:
        console.print("demo: stopped")
    return None
