"""Hears recordings of people in the demo: a file at once, then live, at the pace of speech.

Lag is what a listener waits: audio sent so far, by the clock, less the end of a
word, at the moment when its delta has come through the gateway.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from openai import AsyncOpenAI
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.audio.word_errors import word_error_rate
from trimodal.client.timing import percentile
from trimodal.demo import acts
from trimodal.errors import TrimodalError
from trimodal.report import numbers
from trimodal.report.console import Table, print_table

if TYPE_CHECKING:  # it takes a processor 50 ms that the models need; the act itself imports it
    from openai.resources.realtime.realtime import AsyncRealtimeConnection

CHUNK_S = 0.1
PAUSE_S = 0.7  # between two recordings of a talk
SPEAKERS = slice(1, 3), slice(5, 7)  # the recordings of each; they speak at once
MAX_WER = 0.1
# One turn, until it is committed, and words that may still change: the gateway's own, so without a type.
SESSION: Any = {
    "type": "transcription",
    "audio": {"input": {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}, "turn_detection": None}},
    "include": ["item.input_audio_transcription.tentative"],
}
EVENT = "conversation.item.input_audio_transcription"


@dataclass
class Talk:
    """What is said, and what was heard of it."""

    samples: Samples
    text: str
    heard: str = ""
    lags: list[float] = field(default_factory=list)


async def recording(api: AsyncOpenAI, console: Console, folder: Path) -> bool:
    """A file, transcribed with punctuation and the time of each word."""
    acts.title(
        console,
        "Speech: a recording, transcribed",
        f"right: word error rate at most {MAX_WER:.0%}, punctuation at the end, times in order",
    )
    one = _recordings(folder)[0]
    console.print(f"[bold]voice[/bold]     {one['file']}, {one['seconds']:.1f} s")
    began = time.perf_counter()
    # Any: with what our gateway adds, and as the package's own type of it goes with the response's format.
    heard: Any = await api.audio.transcriptions.create(
        model="speech",
        file=folder / one["file"],
        response_format="verbose_json",
        timestamp_granularities=["word"],
    )
    seconds = time.perf_counter() - began
    console.print(f"[bold]heard[/bold]     {escape(heard.text)}")
    words = heard.words or []
    times = ", ".join(f"{escape(word.word)} {word.start:.2f}" for word in words[:8])
    console.print(f"[bold]times[/bold]     {times} …")
    wer = word_error_rate([one["text"]], [heard.text])
    console.print(f"[dim]word error rate {wer:.1%}, answered in {seconds:.2f} s[/dim]")
    starts = [word.start for word in words]
    good = wer <= MAX_WER and heard.text.rstrip().endswith((".", "!", "?"))
    return acts.verdict(console, good and bool(words) and starts == sorted(starts))


async def captions(api: AsyncOpenAI, console: Console, folder: Path) -> bool:
    """Speakers at once, one of them with the words as they arrive."""
    acts.title(
        console,
        f"Speech: live captions of {len(SPEAKERS)} speakers at once",
        f"right: word error rate at most {MAX_WER:.0%}",
    )
    recordings = _recordings(folder)
    talks = [talk(folder, recordings[chosen]) for chosen in SPEAKERS]
    console.print(
        f"streaming {len(talks[0].samples) / SAMPLE_RATE:.0f} s of recordings at their own pace; of the "
        "first speaker:\nwords as they become final, and in brackets what may still change"
    )
    shown = [console, *[None] * (len(talks) - 1)]
    await asyncio.gather(*(listen(api, one, where) for one, where in zip(talks, shown, strict=True)))
    lags = [lag for one in talks for lag in one.lags]
    lag = (numbers.seconds(percentile(lags, p)) for p in (50, 95))  # none: nothing was heard
    wer = word_error_rate([one.text for one in talks], [one.heard for one in talks])
    row = (*lag, str(sum(len(one.text.split()) for one in talks)), f"{wer:.1%}")
    columns = ("lag p50", "lag p95", "words", "word error rate")
    print_table(Table("committed words", columns, [row]), console)
    return acts.verdict(console, wer <= MAX_WER)


def _recordings(folder: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    return listed


def talk(folder: Path, recordings: Sequence[dict[str, Any]]) -> Talk:
    """Recordings one after the other, with pauses."""
    pause = np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32)
    parts = [pause]
    for one in recordings:
        parts += [*read_blocks(folder / one["file"], 30.0), pause]
    return Talk(np.concatenate(parts), " ".join(one["text"] for one in recordings))


async def listen(api: AsyncOpenAI, what: Talk, console: Console | None = None) -> None:
    """Streams a talk at the pace of speech; fills in what was heard, and shows it on a console.

    Raises: TrimodalError, openai.OpenAIError, websockets.WebSocketException.
    """
    async with api.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        await connection.session.update(session=SESSION)
        began = time.perf_counter()
        await asyncio.gather(_speak(connection, what.samples, began), _hear(connection, what, began, console))


async def _speak(connection: AsyncRealtimeConnection, samples: Samples, began: float) -> None:
    size = round(CHUNK_S * SAMPLE_RATE)
    for start in range(0, len(samples), size):
        chunk = samples[start : start + size]
        # A chunk exists when its last sample was spoken.
        await asyncio.sleep(began + (start + len(chunk)) / SAMPLE_RATE - time.perf_counter())
        pcm = (chunk * 32_768).clip(-32_768, 32_767).astype("<i2").tobytes()
        await connection.input_audio_buffer.append(audio=base64.b64encode(pcm).decode())
    await connection.input_audio_buffer.commit()


async def _hear(
    connection: AsyncRealtimeConnection, what: Talk, began: float, console: Console | None
) -> None:
    """Takes what comes until the turn is completed."""
    event: Any  # with fields of the gateway's own
    delta = ""
    async for event in connection:
        spoken = time.perf_counter() - began
        if event.type == f"{EVENT}.delta":
            delta = event.delta
            what.lags += [spoken - word["end"] for word in event.words]
        elif event.type == f"{EVENT}.tentative":  # one follows each delta, and some come between
            if console and delta:
                _show(console, spoken, what.lags[-1], delta, event.text)
            delta = ""
        elif event.type == f"{EVENT}.completed":
            what.heard = event.transcript
            return
        elif event.type == "error":
            raise TrimodalError(event.error.message)
    raise TrimodalError("the gateway closed the connection before the talk was heard to its end")


def _show(console: Console, spoken: float, lag: float, delta: str, tentative: str) -> None:
    line = Text.assemble((f"  {spoken:5.1f} s, lag {lag:4.2f} s  ", "dim"), delta.strip())
    if tentative := tentative.strip():
        line.append(f"  ({tentative} …)", "dim italic")
    console.print(line)
