"""`trimodal transcribe`: recordings or a microphone as text, SRT, WebVTT or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import typer

from trimodal.cli import common
from trimodal.cli.client import live_view

if TYPE_CHECKING:
    from rich.console import Console

    from trimodal.client import Client, Transcript
    from trimodal.client.streams.live import Listening


MICROPHONE = "microphone"
Format = Literal["text", "srt", "vtt", "json"]


def transcribe(
    files: list[str] | None = typer.Argument(
        None, metavar="FILE | -", help="Recordings (wav, flac, ogg, mp3), or - for raw audio on stdin."
    ),
    form: Format = typer.Option("text", "--format", help="Of what is written."),
    out: Path | None = typer.Option(None, help="Write to this file; for several, to this folder."),
    live: bool = typer.Option(False, "--live", help="Send at the speed of speech, show the words."),
    mic: bool = typer.Option(False, "--mic", help="Listen to the microphone until Ctrl-C."),
    policy: str | None = typer.Option(None, help="When words are final: live, agreement, vad or window."),
    language: str | None = typer.Option(None, help="Such as en; else the model's, or detected."),
    prompt: str | None = typer.Option(None, help="Text before it: steers spelling and style."),
    chunk_ms: int = typer.Option(100, min=20, max=30_000, help="Of live audio, milliseconds."),
    speed: float = typer.Option(1.0, min=0.1, max=100, help="Of --live, times that of speech."),
    url: common.Url = common.URL,
    timeout: float = typer.Option(60.0, min=0.1, help="Longest wait for an answer, seconds."),
) -> None:
    """Transcribe speech, whole or while it is spoken.

    FILE "-" reads raw audio (16 kHz, 16-bit little-endian, mono) from standard input:
    ffmpeg -i talk.mp4 -f s16le -ac 1 -ar 16000 - | trimodal transcribe --live -
    """
    from rich.console import Console

    from trimodal.audio.captions import render
    from trimodal.audio.files import AudioError
    from trimodal.errors import InvalidArgument, RequestError

    sources = files or []
    if mic == bool(sources):
        raise typer.BadParameter("one or more files, - for raw audio on stdin, or --mic, are needed")
    sources = sources or [MICROPHONE]
    targets = _targets(sources, form, out)
    # What is watched must not get between the lines of a document that is piped on.
    console = Console(stderr=form != "text" or out is not None, highlight=False)
    options = {"policy": policy, "language": language, "prompt": prompt}
    listening = cast("Listening", {name: value for name, value in options.items() if value is not None})

    async def ask() -> int:
        code = 0
        async with common.connect(url, silence=timeout) as client:
            for source, target in zip(sources, targets, strict=True):
                try:
                    stopped = False
                    if live or mic:
                        pace = None if mic else speed
                        heard, stopped = await _live(
                            client, source, listening, chunk_ms / 1000, pace, console
                        )
                    else:
                        heard = await _whole(client, source, listening)
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
                if form == "text" and target is None and len(sources) > 1:
                    document = f"==> {source} <==\n{document}"
                _write(document, target)
                if stopped:
                    return 0 if mic else 130
        return code

    try:
        with common.one_sentence():
            code = common.run(ask())
    except OSError as error:
        typer.echo(f"trimodal: {error.filename or 'stdout'}: {(error.strerror or '').lower()}", err=True)
        raise typer.Exit(1) from None
    if code:
        raise typer.Exit(code)


async def _whole(client: Client, source: str, listening: Listening) -> Transcript:
    from rich.console import Console

    # Shown on a terminal only.
    with Console(stderr=True, highlight=False).status(f"{source} …") as status:
        return await client.transcribe(
            source,
            on_update=lambda update: status.update(f"{source}: {update.received_s:.0f} s heard"),
            **listening,
        )


async def _live(
    client: Client, source: str, listening: Listening, chunk_s: float, speed: float | None, console: Console
) -> tuple[Transcript, bool]:
    """What was heard, and whether Ctrl-C ended it."""
    from trimodal.audio.files import read_blocks
    from trimodal.audio.microphone import record
    from trimodal.client import Transcript

    blocks = record(chunk_s) if source == MICROPHONE and speed is None else read_blocks(source, chunk_s)
    with live_view.viewing(console) as show:
        async with client.listen(**listening) as stream:
            stopped = await live_view.follow(stream, blocks, show, speed)
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
        target.parent.mkdir(exist_ok=True)
        target.write_text(document, encoding="utf-8")
        return
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 must not end it
    typer.echo(common.plain(document) if sys.stdout.isatty() else document, nl=False)
