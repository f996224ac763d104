"""`trimodal chat`: one answer, or a conversation at the terminal.

A one-shot answer ends with Ctrl-C; in a conversation Ctrl-C ends the answer, Ctrl-D the conversation.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import typer

from trimodal.cli import common
from trimodal.cli.client import streaming

if TYPE_CHECKING:
    from trimodal.client import Client, Message
    from trimodal.client.options import Options


HELP = "/reset forgets the conversation, /quit leaves, Ctrl-C stops an answer."


def chat(
    prompt: str | None = typer.Argument(
        None, help="What to ask; - reads it from stdin; without one: a conversation."
    ),
    system: str | None = typer.Option(None, help="System message."),
    max_tokens: int | None = typer.Option(None, help="Most tokens of an answer."),
    temperature: float | None = typer.Option(None, help="0: always the likeliest token."),
    top_p: float | None = typer.Option(None, help="Nucleus sampling."),
    top_k: int | None = typer.Option(None, help="Sample among the k likeliest; 0: all."),
    seed: int | None = typer.Option(None, help="The same seed gives the same sample."),
    stop: list[str] | None = typer.Option(None, help="End before this text; can be repeated."),
    tier: str | None = typer.Option(None, help="Class of service, as the server's tiers.toml names it."),
    tenant: str | None = typer.Option(None, help="Whose stored answers may be used."),
    ttft_deadline_ms: int | None = typer.Option(
        None, help="Refuse at once what cannot have its first text by then."
    ),
    deadline_ms: int | None = typer.Option(None, help="End the answer then."),
    cache_control: str | None = typer.Option(None, help="no-cache, no-store or store, commas between."),
    url: common.Url = common.URL,
    timeout: float = typer.Option(60.0, min=0.1, help="Longest silence of the server, seconds."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line."),
    stats: bool = typer.Option(False, "--stats", help="Tokens and latencies, on stderr."),
) -> None:
    """Ask the language model; the answer streams."""
    options = streaming.options_of(locals())
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    if prompt is None and common.is_terminal():
        _converse(common.connect(url, silence=timeout), messages, options, as_json=as_json, stats=stats)
        return
    if prompt is None or prompt == "-":
        prompt = sys.stdin.read().rstrip("\n")
    asked = prompt

    async def ask() -> None:
        async with common.connect(url, silence=timeout) as client:
            if messages:
                stream = client.generate(messages=[*messages, {"role": "user", "content": asked}], **options)
            else:
                stream = client.generate(asked, **options)
            await streaming.show(stream, as_json=as_json, stats=stats)

    with common.one_sentence():
        common.run(ask())


def _converse(client: Client, first: list[Message], options: Options, *, as_json: bool, stats: bool) -> None:
    """Reads lines until Ctrl-D or /quit. The event loop runs only while an answer comes in."""
    import asyncio

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() edits lines and remembers them once this is imported

    from trimodal.errors import TrimodalError

    loop = asyncio.new_event_loop()
    messages = list(first)
    typer.echo(HELP, err=True)
    try:
        while True:
            try:
                line = input("> ").strip()
            except KeyboardInterrupt:
                typer.echo()
                continue
            except EOFError:
                typer.echo()
                return
            if line == "/quit":
                return
            if line == "/reset":
                messages = list(first)
                continue
            if line.startswith("/"):
                typer.echo(HELP, err=True)
                continue
            if not line:
                continue
            asked: list[Message] = [*messages, {"role": "user", "content": line}]
            try:
                stream = client.generate(messages=asked, **options)
                with common.on_interrupt(loop, stream.cancel):
                    loop.run_until_complete(streaming.show(stream, as_json=as_json, stats=stats))
                messages = [*asked, {"role": "assistant", "content": stream.text}]
            except TrimodalError as error:
                typer.echo(f"trimodal: {common.sentence(error)}", err=True)
    finally:
        loop.run_until_complete(client.aclose())
        loop.close()
