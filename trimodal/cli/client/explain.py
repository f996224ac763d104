"""`trimodal explain`: runs one request with tracing on and says where its time went."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer

from trimodal.cli.common import OPERATOR_KEY, OperatorKeyFile, check_writable, one_sentence, read_key, run


def explain(
    kind: Literal["llm", "vision", "speech", "embedding", "assistant"] = typer.Argument(
        help="Whose request.", show_default=False
    ),
    text: str | None = typer.Argument(None, help="Prompt, question, or text to embed; default: a short one."),
    image: Path | None = typer.Option(None, help="For vision and the assistant; vision: or a sample."),
    audio: Path | None = typer.Option(
        None, help="For speech and the assistant: at most 30 s of it; speech: or a sample."
    ),
    max_tokens: int = typer.Option(32, min=1, help="Of the answer."),
    url: str | None = typer.Option(
        None, help="host:port of a running server's gRPC endpoint; default: one is started for this."
    ),
    operator_key_file: OperatorKeyFile = None,
    warm_up: int = typer.Option(1, min=0, max=100, help="Requests before, which do not count."),
    profile: str = typer.Option("cpu", envvar="TRIMODAL_PROFILE", help="Of the server that is started."),
    set_: list[str] = typer.Option(
        [], "--set", metavar="MODEL.PARAMETER=VALUE", help="Change a parameter of it; repeatable."
    ),
    timeout: float = typer.Option(60.0, min=0.1, help="Longest silence of the server, seconds."),
    json_: Path | None = typer.Option(None, "--json", help="Also write all figures to this file."),
) -> None:
    """Run one request and say where its time went: network, queue, processing, response.

    Typical: trimodal explain llm "What is the capital of Japan?"
    """
    from contextlib import ExitStack
    from dataclasses import replace

    from rich.console import Console

    from trimodal.bench.report import write_json
    from trimodal.explain.requests import Question
    from trimodal.explain.run import Server, explain, started
    from trimodal.explain.show import as_json, show
    from trimodal.server.options import parse_profile
    from trimodal.server.overlay import parse_changes

    question = Question(kind, text, image, audio, max_tokens)
    if json_:
        check_writable("--json", json_)
    if url and set_:
        raise typer.BadParameter("--set changes a server that is started here: leave it or --url away")

    with one_sentence("explain"), ExitStack() as stack:
        if url:
            server = Server(url, read_key(operator_key_file, OPERATOR_KEY), timeout)
        else:
            server = stack.enter_context(started(question, parse_profile(profile), parse_changes(set_)))
            server = replace(server, timeout=timeout)
        waterfall = run(explain(question, server, warm_up=warm_up))
        show(waterfall, Console(highlight=False))
        if json_:
            write_json(json_, as_json(waterfall))
