"""Streams recordings to the speech model at the pace of speech, or faster, and notes when each word came."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.bench.load.records import Record
from trimodal.bench.targets.taking import taken
from trimodal.client import Client, LiveUpdate

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName


@dataclass
class Speech:
    """Live streams.

    A request is a stream, from its first sample's moment to the answer to its end. TTFT is to the first
    words, committed or tentative; a word's lag counts from the moment at which its end was spoken, so a chunk
    that goes out late, as the last answer was late, makes it longer.

    Attributes:
        recordings: float32[n] at 16 kHz, in turn.
        pace: 1 plays as fast as it was spoken, 4 four times as fast; 0 as fast as the server takes it, where
            words have no lag.
    """

    client: Client
    recordings: Sequence[Samples]
    policy: PolicyName | None = None
    chunk_s: float = 0.1
    pace: float = 1.0
    timeout: float = 60.0
    model: str = "speech"

    async def send(self, number: int) -> Record:
        samples = self.recordings[number % len(self.recordings)]
        clock = asyncio.get_running_loop().time
        size = round(self.chunk_s * SAMPLE_RATE)

        async def play(record: Record) -> None:
            record.audio_s = len(samples) / SAMPLE_RATE
            words: list[Word] = []
            options = {"timeout": self.timeout, "model": self.model, "policy": self.policy}
            async with self.client.listen(**options) as stream:  # type: ignore[arg-type]
                for at in range(0, len(samples), size):
                    chunk = samples[at : at + size]
                    if self.pace:
                        spoken = (at + len(chunk)) / SAMPLE_RATE / self.pace
                        await asyncio.sleep(max(0.0, record.sent + spoken - clock()))
                    words += self._note(record, await stream.send(chunk), clock() - record.sent)
                words += self._note(record, await stream.end(), clock() - record.sent)
            record.text = "".join(word.text for word in words)

        return await taken(play)

    def _note(self, record: Record, update: LiveUpdate, now: float) -> Sequence[Word]:
        """Takes an answer that came at `now` in; its committed words."""
        if update.committed or (update.tentative.strip() and not record.pieces):
            record.piece()
        record.output_tokens += len(update.committed)
        if self.pace:
            record.lags += [now - word.end / self.pace for word in update.committed]
        return update.committed
