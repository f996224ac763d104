"""Sends a whole recording through a live stream, as fast as the server takes it.

The server sets the pace: it delays its answers when it is behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.audio.values import SAMPLE_RATE
from trimodal.client.async_iteration import pumped
from trimodal.client.streams.chunks import Audio, checked
from trimodal.client.streams.live import Listening, LiveStream
from trimodal.client.values import LiveUpdate, Transcript

OnUpdate = Callable[[LiveUpdate], object]

# The words of a file are not needed one by one: whole segments need the least computing.
FILE_LISTENING: Listening = {"policy": "vad"}
BLOCK_S = 10


async def transcribe(
    stream: LiveStream, audio: str | Path | Audio, on_update: OnUpdate | None = None
) -> Transcript:
    """Sends all of `audio` through `stream` and ends it."""
    tell = on_update or (lambda update: None)
    async with aclosing(pumped(_blocks(audio))) as blocks:
        async for block in blocks:
            tell(await stream.send(block))
    tell(await stream.end())
    return Transcript(stream.words, stream.text, stream.latest.received_s)


def _blocks(audio: Any) -> Generator[Audio, None, None]:
    if isinstance(audio, str | Path):
        from trimodal.audio.files import read_blocks

        yield from read_blocks(audio, BLOCK_S)
        return
    samples = checked(audio)
    for at in range(0, len(samples), BLOCK_S * SAMPLE_RATE):
        yield np.asarray(samples[at : at + BLOCK_S * SAMPLE_RATE])
