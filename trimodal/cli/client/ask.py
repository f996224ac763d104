"""`trimodal ask`: one question, typed or spoken, perhaps about an image; the answer streams."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimodal.cli import common
from trimodal.cli.client import streaming

if TYPE_CHECKING:
    from trimodal.client import AskStream, Delta, Heard, Saw
    from trimodal.client.options import Options

_SHOWN_LABELS = 3


def ask(
    text: Annotated[
        str | None, typer.Argument(help="The question; - reads it from stdin; or --audio has it.")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="Image file (png, jpg, webp).")] = None,
    audio: Annotated[Path | None, typer.Option(help="Recording (wav, flac, ogg, mp3).")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of the answer.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0: always the likeliest token.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose stored answers may be used.")] = None,
    tier: Annotated[str | None, typer.Option(help="Class of service.")] = None,
    deadline_ms: Annotated[int | None, typer.Option(help="For all stages together.")] = None,
    url: Annotated[
        str, typer.Option(envvar="TRIMODAL_URL", help="host:port of the gRPC endpoint.")
    ] = common.URL,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest silence of the server, seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Time of each stage, on stderr.")] = False,
) -> None:
    """Ask the assistant: text, an image and speech in one question; the answer streams."""
    from trimodal.audio.files import AudioError

    if text is None and audio is None:
        raise typer.BadParameter("a question is needed: as text, or spoken with --audio")
    asked = sys.stdin.read().rstrip("\n") if text == "-" else text
    options: Options = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "tenant": tenant,
        "tier": tier,
        "deadline_ms": deadline_ms,
    }

    async def main() -> None:
        async with common.connect(url, silence=timeout) as client:
            stream = client.ask(asked, image=image, audio=audio, **options)
            await streaming.show(
                stream, row=_row, tell=_tell, summary=summary, footer=footer, as_json=as_json, stats=stats
            )

    try:
        with common.one_sentence():
            common.run(main())
    except AudioError as error:
        typer.echo(f"trimodal: {error}", err=True)
        raise typer.Exit(1) from None


def _tell(item: Heard | Saw | Delta) -> None:
    """Findings go to stderr: stdout is the answer alone."""
    from trimodal.client import Delta, Heard

    plain = common.plain if sys.stdout.isatty() else str
    if isinstance(item, Delta):
        typer.echo(plain(item.text), nl=False)
    elif isinstance(item, Heard):
        typer.echo(f"heard: {common.plain(item.text) or '(no words)'}", err=True)
    else:
        labels = (f"{common.plain(one.label)} {one.score:.2f}" for one in item.labels[:_SHOWN_LABELS])
        typer.echo(f"saw: {', '.join(labels)}", err=True)


def _row(item: Heard | Saw | Delta) -> dict[str, Any]:
    from trimodal.client import Delta, Heard

    if isinstance(item, Delta):
        return {"stage": "answer", "delta": item.text, "tokens": item.tokens}
    if isinstance(item, Heard):
        return {"stage": "heard", "text": item.text}
    return {"stage": "saw", "labels": [{"label": one.label, "score": one.score} for one in item.labels]}


def summary(stream: AskStream) -> dict[str, Any]:
    """What the last JSON line has beside text and usage; times in milliseconds."""
    return {"stages_ms": stream.stages}


def footer(stream: AskStream) -> str:
    """The same in one line for people."""
    parts = [stream.finish_reason or "stopped", f"{stream.usage.completion} tokens"]
    if stream.note.cache:
        parts.append(f"from the cache ({stream.note.cache})")
    names = {"heard": "heard in", "saw": "saw in", "ttft": "first text after", "total": "all in"}
    for name, said in names.items():
        if (ms := stream.stages.get(name)) is not None:
            parts.append(f"{said} {ms:.0f} ms")
    return " · ".join(parts)
