"""Asks for the labels of images, for the vectors of texts, and live streams for words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trimodal.audio.values import SAMPLE_RATE, PolicyName, Samples
from trimodal.bench.load.generator import Send
from trimodal.bench.load.records import Record
from trimodal.bench.samples import batch_of
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import sender, taken
from trimodal.client import Client, LiveUpdate


def vision(
    client: Client, files: Sequence[bytes], *, batch: int = 1, timeout: float = 60.0, model: str = "vision"
) -> Send:
    """The vision pipeline, `batch` of `files` (JPEG) in each request."""

    async def ask(record: Record, number: int) -> None:
        record.items = batch
        await client.classify(batch_of(files, number, batch), timeout=timeout, model=model)
        record.piece()

    return sender(ask)


def embedding(
    client: Client, questions: Source, *, batch: int = 1, timeout: float = 60.0, model: str = "embedding"
) -> Send:
    """The embedding model, `batch` texts in each request."""

    async def send(number: int) -> Record:
        # Made before the record begins: it is no part of the latency.
        texts = [questions(number * batch + index).text for index in range(batch)]

        async def ask(record: Record) -> None:
            record.items = batch
            await client.embed(texts, timeout=timeout, model=model)
            record.piece()

        return await taken(ask)

    return send


def speech(
    client: Client,
    recordings: Sequence[Samples],
    *,
    policy: PolicyName | None = None,
    chunk_s: float = 0.1,
    pace: float = 1.0,
    timeout: float = 60.0,
    model: str = "speech",
) -> Send:
    """Live streams of the recordings in turn, float32[n] at 16 kHz.

    A request is a stream, from its first sample's moment to the answer to its end. TTFT is to the first
    words, committed or tentative; a word's lag counts from the moment at which its end was spoken, so a chunk
    that goes out late, as the last answer was late, makes it longer.

    Args:
        pace: 1 plays as fast as it was spoken, 4 four times as fast; 0 as fast as the server takes it, where
            words have no lag.
    """
    size = round(chunk_s * SAMPLE_RATE)

    async def ask(record: Record, number: int) -> None:
        samples = recordings[number % len(recordings)]
        clock = asyncio.get_running_loop().time
        record.audio_s = len(samples) / SAMPLE_RATE

        def note(update: LiveUpdate) -> None:
            """Takes an answer in that has just come."""
            now = clock() - record.sent
            if update.committed or (update.tentative.strip() and not record.pieces):
                record.piece()
            record.output_tokens += len(update.committed)
            record.text = stream.text
            if pace:
                record.lags += [now - word.end / pace for word in update.committed]

        async with client.listen(timeout=timeout, model=model, policy=policy) as stream:
            for at in range(0, len(samples), size):
                chunk = samples[at : at + size]
                if pace:
                    spoken = (at + len(chunk)) / SAMPLE_RATE / pace
                    await asyncio.sleep(max(0.0, record.sent + spoken - clock()))
                note(await stream.send(chunk))
            note(await stream.end())

    return sender(ask)
