"""Streams recordings to the speech model at the pace of speech, or faster, and notes when each word came."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.bench.load.records import Record
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client, LiveUpdate

if TYPE_CHECKING:
    from trimodal.audio.values import PolicyName


class Speech:
    """Live streams.

    A request is a stream, from its first sample's moment to the answer to its end. TTFT is to the first
    words, committed or tentative; a word's lag counts from the moment at which its end was spoken, so a chunk
    that goes out late, as the last answer was late, makes it longer.

    Args:
        recordings: float32[n] at 16 kHz, in turn.
        pace: 1 plays as fast as it was spoken, 4 four times as fast; 0 as fast as the server takes it, where
            words have no lag.

    Attributes:
        texts: number of a request that was answered → its committed words.
    """

    def __init__(
        self,
        client: Client,
        recordings: Sequence[Samples],
        *,
        policy: PolicyName | None = None,
        chunk_s: float = 0.1,
        pace: float = 1.0,
        timeout: float = 60.0,
        model: str = "speech",
    ) -> None:
        self._client = client
        self._recordings = recordings
        self._policy: PolicyName | None = policy
        self._chunk = round(chunk_s * SAMPLE_RATE)
        self._pace = pace
        self._timeout = timeout
        self._model = model
        self.texts: dict[int, str] = {}

    async def send(self, number: int) -> Record:
        samples = self._recordings[number % len(self._recordings)]
        clock = asyncio.get_running_loop().time

        async def play(taking: Taking) -> None:
            taking.audio_s = len(samples) / SAMPLE_RATE
            words: list[Word] = []
            options = {"timeout": self._timeout, "model": self._model, "policy": self._policy}
            async with self._client.listen(**options) as stream:  # type: ignore[arg-type]
                for at in range(0, len(samples), self._chunk):
                    chunk = samples[at : at + self._chunk]
                    if self._pace:
                        spoken = (at + len(chunk)) / SAMPLE_RATE / self._pace
                        await asyncio.sleep(max(0.0, taking.sent + spoken - clock()))
                    words += self._note(taking, await stream.send(chunk), clock() - taking.sent)
                words += self._note(taking, await stream.end(), clock() - taking.sent)
            self.texts[number] = "".join(word.text for word in words)

        return await taken(play)

    def _note(self, taking: Taking, update: LiveUpdate, now: float) -> Sequence[Word]:
        """Takes an answer that came at `now` in; its committed words."""
        if update.committed or (update.tentative.strip() and not taking.pieces):
            taking.piece()
        taking.output_tokens += len(update.committed)
        if self._pace:
            taking.lags += [now - word.end / self._pace for word in update.committed]
        return update.committed
