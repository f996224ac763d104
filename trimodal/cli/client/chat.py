"""`trimodal chat`: one answer, or a conversation at the terminal.

A one-shot answer ends with Ctrl-C; in a conversation Ctrl-C ends the answer, Ctrl-D the conversation.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from trimodal.cli import common
from trimodal.cli.client import streaming

if TYPE_CHECKING:
    from trimodal.client import AnswerStream, Client, Message
    from trimodal.client.options import Options


class Form(TypedDict):
    """How answers are shown."""

    as_json: bool
    stats: bool


HELP = "/reset forgets the conversation, /quit leaves, Ctrl-C stops an answer."


def chat(
    prompt: Annotated[
        str | None, typer.Argument(help="What to ask; - reads it from stdin; without one: a conversation.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of an answer.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0: always the likeliest token.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Nucleus sampling.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest; 0: all.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same sample.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; can be repeated.")] = None,
    tier: Annotated[
        str | None, typer.Option(help="Class of service, as the server's tiers.toml names it.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose stored answers may be used.")] = None,
    ttft_deadline_ms: Annotated[
        int | None, typer.Option(help="Refuse at once what cannot have its first text by then.")
    ] = None,
    deadline_ms: Annotated[int | None, typer.Option(help="End the answer then.")] = None,
    cache_control: Annotated[
        str | None, typer.Option(help="no-cache, no-store or store, commas between.")
    ] = None,
    url: Annotated[
        str, typer.Option(envvar="TRIMODAL_URL", help="host:port of the gRPC endpoint.")
    ] = common.URL,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest silence of the server, seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Tokens and latencies, on stderr.")] = False,
) -> None:
    """Ask the language model; the answer streams."""
    options: Options = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "stop": stop or (),
        "tier": tier,
        "tenant": tenant,
        "ttft_deadline_ms": ttft_deadline_ms,
        "deadline_ms": deadline_ms,
        "cache_control": cache_control,
    }
    form: Form = {"as_json": as_json, "stats": stats}
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    if prompt is None and common.is_terminal():
        _converse(common.connect(url, silence=timeout), messages, options, form)
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
            await _show(stream, form)

    with common.one_sentence():
        common.run(ask())


def _converse(client: Client, first: list[Message], options: Options, form: Form) -> None:
    """Reads lines until Ctrl-D or /quit. The event loop runs only while an answer comes in."""
    import asyncio
    import signal

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
                with contextlib.suppress(NotImplementedError, RuntimeError):  # not on every platform
                    loop.add_signal_handler(signal.SIGINT, stream.cancel)
                loop.run_until_complete(_show(stream, form))
                messages = [*asked, {"role": "assistant", "content": stream.text}]
            except TrimodalError as error:
                typer.echo(f"trimodal: {common.sentence(error)}", err=True)
            finally:
                with contextlib.suppress(NotImplementedError, RuntimeError):
                    loop.remove_signal_handler(signal.SIGINT)
    finally:
        loop.run_until_complete(client.aclose())
        loop.close()


async def _show(stream: AnswerStream, form: Form) -> None:
    """Shows one answer to its end. Raises what the stream raises."""
    plain = common.plain if sys.stdout.isatty() else str
    await streaming.show(
        stream,
        row=lambda delta: {"delta": delta.text, "tokens": delta.tokens},
        tell=lambda delta: typer.echo(plain(delta.text), nl=False),
        summary=summary,
        footer=footer,
        **form,
    )


def summary(stream: AnswerStream) -> dict[str, Any]:
    """What the last JSON line has beside text and usage; times in milliseconds."""
    timing = stream.timing
    return {
        "similarity": round(stream.note.similarity, 4),
        "trimmed": dict(stream.note.trimmed),
        "ttft_ms": _ms(timing.ttft),
        "itl_p50_ms": _ms(timing.itl_percentile(50)),
        "itl_p99_ms": _ms(timing.itl_percentile(99)),
        "latency_ms": _ms(timing.latency),
    }


def footer(stream: AnswerStream) -> str:
    """The same in one line for people."""
    timing, usage, note = stream.timing, stream.usage, stream.note
    parts = [
        f"{stream.finish_reason or 'stopped'}",
        f"prompt {usage.prompt} tokens ({usage.cached} cached)",
        f"answer {usage.completion} tokens in {timing.latency:.2f} s",
    ]
    if note.cache in ("exact", "semantic"):
        likeness = f", similarity {note.similarity:.3f}" if note.cache == "semantic" else ""
        parts.append(f"from the cache ({note.cache}{likeness})")
    if note.trimmed:
        parts.append(f"left out {note.trimmed.get('messages', 0)} older messages")
    if timing.ttft is not None:
        parts.append(f"first text after {timing.ttft * 1e3:.1f} ms")
    if timing.itl:
        p50, p99 = timing.itl_percentile(50) or 0.0, timing.itl_percentile(99) or 0.0
        parts.append(f"gaps {p50 * 1e3:.1f} ms (p50), {p99 * 1e3:.1f} ms (p99)")
    return " · ".join(parts)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
