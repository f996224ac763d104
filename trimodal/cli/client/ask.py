"""`trimodal ask`: one question, typed or spoken, perhaps about an image; the answer streams."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trimodal.cli import common
from trimodal.cli.client import streaming


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
    url: common.Url = common.URL,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest silence of the server, seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Time of each stage, on stderr.")] = False,
) -> None:
    """Ask the assistant: text, an image and speech in one question; the answer streams."""
    options = streaming.options_of(locals())
    if text is None and audio is None:
        raise typer.BadParameter("a question is needed: as text, or spoken with --audio")
    asked = sys.stdin.read().rstrip("\n") if text == "-" else text

    async def main() -> None:
        async with common.connect(url, silence=timeout) as client:
            stream = client.ask(asked, image=image, audio=audio, **options)
            await streaming.show(stream, as_json=as_json, stats=stats)

    with common.one_sentence():
        common.run(main())
