"""`trimodal ask`: one question, typed or spoken, perhaps about an image; the answer streams."""

from __future__ import annotations

from pathlib import Path

import typer

from trimodal.cli import common
from trimodal.cli.client import streaming


def ask(
    text: str | None = typer.Argument(None, help="The question; - reads it from stdin; or --audio has it."),
    image: Path | None = typer.Option(None, help="Picture file."),
    audio: Path | None = typer.Option(None, help="Recording (wav, flac, ogg, mp3)."),
    max_tokens: int | None = typer.Option(None, help="Most tokens of the answer."),
    temperature: float | None = typer.Option(None, help="0: always the likeliest token."),
    tenant: str | None = typer.Option(None, help="Whose stored answers may be used."),
    tier: str | None = typer.Option(None, help="Class of service."),
    deadline_ms: int | None = typer.Option(None, help="For all stages together."),
    url: common.Url = common.URL,
    timeout: float = typer.Option(60.0, min=0.1, help="Longest silence of the server, seconds."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line."),
    stats: bool = typer.Option(False, "--stats", help="Time of each stage, on stderr."),
) -> None:
    """Ask the assistant: text, an image and speech in one question; the answer streams."""
    options = streaming.options_of(locals())
    if text is None and audio is None:
        raise typer.BadParameter("a question is needed: as text, or spoken with --audio")
    question = common.read_stdin() if text == "-" else text

    async def main() -> None:
        async with common.connect(url, silence=timeout) as client:
            stream = client.ask(question, image=image, audio=audio, **options)
            await streaming.show(stream, as_json=as_json, stats=stats)

    with common.one_sentence():
        common.run(main())
