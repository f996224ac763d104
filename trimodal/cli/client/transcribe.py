"""`trimodal transcribe`: recordings as text, SRT, WebVTT or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from rich.console import Console

    from trimodal.client import Client, Transcript
    from trimodal.client.streams.live import Listening

Format = Literal["text", "srt", "vtt", "json"]


@dataclass(frozen=True)
class TranscribeCommand:
    """The options of `trimodal transcribe`."""

    form: Annotated[Format, typer.Option("--format", help="Of what is written.")] = "text"
    out: Annotated[Path | None, typer.Option(help="Write to this file; for several, to this folder.")] = None
    live: Annotated[bool, typer.Option("--live", help="Send at the speed of speech, show the words.")] = False
    policy: Annotated[str | None, typer.Option(help="When words are final: edge, vad or file.")] = None
    delay: Annotated[str | None, typer.Option(help="Of edge: minimal, low, medium, high or xhigh.")] = None
    language: Annotated[str | None, typer.Option(help="Such as en; else the model's, or detected.")] = None
    prompt: Annotated[str | None, typer.Option(help="Text before it: steers spelling and style.")] = None
    chunk_ms: Annotated[int, typer.Option(min=20, max=30_000, help="Of live audio, milliseconds.")] = 100
    speed: Annotated[float, typer.Option(min=0.1, max=100, help="Of --live, times that of speech.")] = 1.0
    url: common.Url = common.URL
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest wait for an answer, seconds.")] = 60.0

    @property
    def listening(self) -> Listening:
        options = {name: getattr(self, name) for name in ("policy", "delay", "language", "prompt")}
        return cast("Listening", {name: value for name, value in options.items() if value is not None})


@common.with_settings(TranscribeCommand)
def transcribe(
    settings: TranscribeCommand,
    files: list[str] = typer.Argument(
        ..., metavar="FILE | -", help="Recordings (wav, flac, ogg, mp3), or - for raw audio on stdin."
    ),
) -> None:
    """Transcribe speech, whole or while it is spoken.

    FILE "-" reads raw audio (16 kHz, 16-bit little-endian, mono) from standard input:
    ffmpeg -i talk.mp4 -f s16le -ac 1 -ar 16000 - | trimodal transcribe --live -

    A microphone: arecord -q -t raw -f S16_LE -r 16000 | trimodal transcribe --live -
    """
    from rich.console import Console

    from trimodal.audio.captions import render
    from trimodal.audio.files import AudioError
    from trimodal.errors import InvalidArgument, RequestError

    form = settings.form
    targets = _targets(files, form, settings.out)
    # What is watched must not get between the lines of a document that is piped on.
    console = Console(stderr=form != "text" or settings.out is not None, highlight=False)

    async def ask() -> int:
        code = 0
        async with common.connect(settings.url, silence=settings.timeout) as client:
            for source, target in zip(files, targets, strict=True):
                try:
                    heard, stopped = await _hear(client, source, settings, console)
                except (AudioError, InvalidArgument) as error:  # of this file; the others go on
                    shown = str(error) if isinstance(error, AudioError) else f"{source}: {error}"
                    typer.echo(f"trimodal: {shown}", err=True)
                    if form == "json" and target is None:
                        kind = error.code if isinstance(error, RequestError) else "FILE"
                        row = {"file": source, "error": str(error), "code": kind}
                        _write(f"{json.dumps(row, ensure_ascii=False)}\n", None)
                    code = 1
                    continue
                document = render(heard.words, form, seconds=heard.seconds, name=source)
                if form == "text" and target is None and len(files) > 1:
                    document = f"==> {source} <==\n{document}"
                _write(document, target)
                if stopped and source != "-":  # a microphone has no other end
                    return 130
        return code

    with common.one_sentence():
        code = common.run(ask())
    if code:
        raise typer.Exit(code)


async def _hear(
    client: Client, source: str, settings: TranscribeCommand, console: Console
) -> tuple[Transcript, bool]:
    """What was heard, and whether Ctrl-C ended it."""
    from rich.console import Console
    from rich.markup import escape

    from trimodal.audio.files import read_blocks
    from trimodal.cli.client import live_view
    from trimodal.client import Transcript

    if not settings.live:
        # Shown on a terminal only.
        name = escape(source)
        with Console(stderr=True, highlight=False).status(f"{name} …") as status:
            whole = await client.transcribe(
                source,
                on_update=lambda update: status.update(f"{name}: {update.received_s:.0f} s heard"),
                **settings.listening,
            )
        return whole, False
    blocks = read_blocks(source, settings.chunk_ms / 1000)
    with live_view.viewing(console) as show:
        async with client.listen(**settings.listening) as stream:
            stopped = await live_view.follow(stream, blocks, show, settings.speed)
    return Transcript(stream.words, stream.text, stream.latest.received_s), stopped


def _targets(sources: Sequence[str], form: Format, out: Path | None) -> list[Path | None]:
    """Where each document goes; None: stdout."""
    if out is None:
        if len(sources) > 1 and form in ("srt", "vtt"):
            raise typer.BadParameter(f"--format {form} of several files needs --out FOLDER")
        return [None] * len(sources)
    if len(sources) == 1 and not out.is_dir():
        if not out.absolute().parent.is_dir():
            raise typer.BadParameter(f"--out {out}: there is no folder {out.parent}")
        return [out]
    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"--out {out}: a folder is needed for several files")
    suffix = ".txt" if form == "text" else f".{form}"
    targets: dict[Path, str] = {}
    for source in sources:
        target = out / (("stdin" if source == "-" else Path(source).stem) + suffix)
        if target in targets:
            raise typer.BadParameter(f"--out {out}: {targets[target]} and {source} would both be {target}")
        targets[target] = source
    return list(targets)


def _write(document: str, target: Path | None) -> None:
    if target is not None:
        from trimodal.files import replace_file

        target.parent.mkdir(parents=True, exist_ok=True)
        # A recording's name that is no text is in its JSON.
        replace_file(target, document.encode(errors="backslashreplace"))
    else:
        typer.echo(common.plain(document) if sys.stdout.isatty() else document, nl=False)
