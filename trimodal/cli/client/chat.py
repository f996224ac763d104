"""`trimodal chat`: one answer, or a conversation at the terminal.

A one-shot answer ends with Ctrl-C; in a conversation Ctrl-C ends the answer, Ctrl-D the conversation.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trimodal.cli import common
from trimodal.cli.client import streaming

if TYPE_CHECKING:
    from trimodal.client import Message
    from trimodal.client.options import Options


HELP = "/reset forgets the conversation, /quit leaves, Ctrl-C stops an answer."


sampling = partial(typer.Option, rich_help_panel="Sampling")
terms = partial(typer.Option, rich_help_panel="Terms of the request")


@dataclass(frozen=True)
class ChatCommand:
    """The options of `trimodal chat`; None: as the model or its tier says."""

    system: Annotated[str | None, typer.Option(help="System message.")] = None
    url: common.Url = common.URL
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest silence of the server, seconds.")] = 60.0
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False
    stats: Annotated[bool, typer.Option("--stats", help="Tokens and latencies, on stderr.")] = False
    max_tokens: Annotated[int | None, sampling(help="Most tokens of an answer.")] = None
    temperature: Annotated[float | None, sampling(help="0: always the likeliest token.")] = None
    top_p: Annotated[float | None, sampling(help="Nucleus sampling.")] = None
    top_k: Annotated[int | None, sampling(help="Sample among the k likeliest; 0: all.")] = None
    seed: Annotated[int | None, sampling(help="The same seed gives the same sample.")] = None
    stop: Annotated[list[str] | None, sampling(help="End before this text; can be repeated.")] = None
    tier: Annotated[str | None, terms(help="Class of service, as the server's tiers.toml names it.")] = None
    tenant: Annotated[str | None, terms(help="Whose stored answers may be used.")] = None
    ttft_deadline_ms: Annotated[
        int | None, terms(help="Refuse at once what cannot have its first text by then.")
    ] = None
    deadline_ms: Annotated[int | None, terms(help="End the answer then.")] = None
    cache_control: Annotated[str | None, terms(help="no-cache, no-store or store, commas between.")] = None


Prompt = Annotated[
    str | None,
    typer.Argument(help="What to ask; - reads it from stdin; without one: a conversation."),
]


@common.with_settings(ChatCommand)
def chat(settings: ChatCommand, prompt: Prompt = None) -> None:
    """Ask the language model; the answer streams."""
    options = streaming.options_of(vars(settings))
    messages: list[Message] = []
    if settings.system:
        messages.append({"role": "system", "content": settings.system})
    if prompt is None and common.is_terminal():
        _converse(messages, options, settings)
        return
    question = common.read_stdin() if prompt is None or prompt == "-" else prompt

    async def ask() -> None:
        async with common.connect(settings.url, silence=settings.timeout) as client:
            if messages:
                messages.append({"role": "user", "content": question})
                stream = client.generate(messages=messages, **options)
            else:
                stream = client.generate(question, **options)
            await streaming.show(stream, as_json=settings.as_json, stats=settings.stats)

    with common.one_sentence():
        common.run(ask())


def _converse(first: list[Message], options: Options, settings: ChatCommand) -> None:
    """Reads lines until Ctrl-D or /quit. The event loop runs only while an answer comes in."""
    import asyncio

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() edits lines and remembers them once this is imported

    from trimodal.errors import TrimodalError

    client = common.connect(settings.url, silence=settings.timeout)
    loop = asyncio.new_event_loop()
    messages = list(first)
    options = {**options, "truncation": "auto"}
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
            talk: list[Message] = [*messages, {"role": "user", "content": line}]
            try:
                stream = client.generate(messages=talk, **options)
                with common.on_interrupt(loop, stream.cancel):
                    shown = streaming.show(stream, as_json=settings.as_json, stats=settings.stats)
                    loop.run_until_complete(shown)
                if lost := stream.note.trimmed.get("messages"):
                    typer.echo(f"The talk is too long: its oldest {lost} messages were left out.", err=True)
                messages = [*talk, {"role": "assistant", "content": stream.text}]
            except TrimodalError as error:
                typer.echo(f"trimodal: {common.sentence(error)}", err=True)
    finally:
        loop.run_until_complete(client.aclose())
        loop.close()
