"""Hears speech in the demo: a recording as a whole, one at the pace of speech, then several speakers at once.

Lag is what a listener waits: audio sent so far, by the clock, less the end of a
word, at the moment when the word is held as committed.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from openai import AsyncOpenAI
from rich.console import Console
from rich.text import Text

from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.audio.word_errors import word_error_rate
from trimodal.client import Client, LiveUpdate
from trimodal.client.timing import percentile
from trimodal.demo import acts

MEETING = "15-meeting.wav"
CHUNK_S = 0.1
PAUSE_S = 0.7  # between two recordings of a talk
SPEAKERS = 4
# The floor of the demo model is 5 % on sentences; a few dozen words are a coarse measure of it.
MAX_WER = 0.1


@dataclass
class Talk:
    """What is said, and what was heard of it."""

    samples: Samples
    text: str
    heard: str = ""
    lags: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / SAMPLE_RATE


async def speech(api: AsyncOpenAI, client: Client, console: Console, folder: Path) -> bool:
    """A recording through the gateway, one talk with its words as they arrive, then four at once."""
    console.rule("[bold]Audio: recordings and live speech")
    recordings = json.loads((folder / "samples.json").read_text())
    meeting = next(one for one in recordings if one["file"] == MEETING)
    whole = await _transcribed(api, console, folder, meeting)
    clean = [one for one in recordings if one["noise_db"] is None]
    first = talk(folder, clean[: len(clean) // 3])
    console.print(
        f"streaming {first.seconds:.0f} s of synthetic voices that training never heard, at their own pace:\n"
        "words as they become final, and in brackets what may still change"
    )
    await listen(client, first, console)
    wer = _wer([first])
    console.print(
        f"lag of committed words p50 {percentile(first.lags, 50):.2f} s, word error rate {wer:.1%}\n"
    )
    talks = [talk(folder, clean[number::SPEAKERS]) for number in range(SPEAKERS)]
    await asyncio.gather(*(listen(client, one) for one in talks))
    together = _wer(talks)
    lags = [lag for one in talks for lag in one.lags]
    table = acts.table(f"{SPEAKERS} speakers at once", "lag p50", "lag p95", "words", "word error rate")
    words = sum(len(one.text.split()) for one in talks)
    lag = (f"{percentile(lags, p):.2f} s" for p in (50, 95))
    table.add_row(*lag, str(words), f"{together:.1%}")
    console.print(table)
    return max(whole, wer, together) <= MAX_WER


async def _transcribed(api: AsyncOpenAI, console: Console, folder: Path, recording: dict[str, str]) -> float:
    """Sends a file as a whole, and shows what was heard; its word error rate."""
    file = folder / recording["file"]
    began = time.perf_counter()
    told = await api.audio.transcriptions.create(model="speech", file=file, response_format="verbose_json")
    seconds = time.perf_counter() - began
    wer = word_error_rate([recording["text"]], [told.text])
    console.print(f"[bold]{file.name}[/bold], {told.duration:.0f} s, as a whole:")
    for segment in told.segments or ():
        console.print(f"  {segment.start:5.1f} s  {segment.text.strip()}", markup=False)
    console.print(f"heard in {seconds:.1f} s, word error rate {wer:.1%}\n")
    return wer


def talk(folder: Path, recordings: list[dict[str, str]]) -> Talk:
    """Recordings one after the other, with pauses."""
    pause = np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32)
    parts = [pause]
    for one in recordings:
        parts += [*read_blocks(folder / one["file"], 30.0), pause]
    return Talk(np.concatenate(parts), " ".join(one["text"] for one in recordings))


async def listen(client: Client, what: Talk, console: Console | None = None) -> None:
    """Streams a talk at the pace of speech; fills in what was heard, and shows it on a console."""
    size = round(CHUNK_S * SAMPLE_RATE)

    def take(update: LiveUpdate, spoken: float) -> None:
        what.lags += [spoken - word.end for word in update.committed]
        if console and update.committed:
            _show(console, spoken, spoken - update.committed[-1].end, update)

    async with client.listen() as stream:
        began = time.perf_counter()
        for start in range(0, len(what.samples), size):
            chunk = what.samples[start : start + size]
            # A chunk exists when its last sample was spoken.
            await asyncio.sleep(began + (start + len(chunk)) / SAMPLE_RATE - time.perf_counter())
            update = await stream.send(chunk)
            take(update, min(time.perf_counter() - began, what.seconds))
        update = await stream.end()
        take(update, time.perf_counter() - began)
        what.heard = stream.text


def _show(console: Console, spoken: float, lag: float, update: LiveUpdate) -> None:
    line = Text.assemble((f"  {spoken:5.1f} s, lag {lag:4.2f} s  ", "dim"), update.text.strip())
    if tentative := update.tentative.strip():
        line.append(f"  ({tentative} …)", "dim italic")
    console.print(line)


def _wer(talks: list[Talk]) -> float:
    return word_error_rate([one.text for one in talks], [one.heard for one in talks])
