"""Sends one turn's audio to the speech model while it comes, and yields what is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.client.client import Client
from trimodal.client.streams.live import Listening
from trimodal.client.values import LiveUpdate

# Audio that waits for the server; then the client's socket is not read until there is room.
HELD_S = 5.0
# The server drops a stream that is silent for 60 s: in a pause of the client's it gets a little silence.
_PAUSE_S = 20.0
_SILENCE = np.zeros(SAMPLE_RATE // 50, np.float32)


class AudioTurn:
    """Audio from the first `put` to `end`. It is heard by whoever iterates `updates`, once.

    Attributes:
        samples: what was put, at 16 kHz. ended: whether `end` was called.
    """

    def __init__(self, client: Client, listening: Listening) -> None:
        self._stream = client.listen(**listening)
        self._waiting: list[Samples] = []
        self._held = 0
        self._over = False
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self.samples = 0
        self.ended = False

    @property
    def seconds(self) -> float:
        """Of audio that was put."""
        return self.samples / SAMPLE_RATE

    @property
    def full(self) -> bool:
        """Whether `put` would wait."""
        return self._held > HELD_S * SAMPLE_RATE and not self._over

    async def put(self, samples: Samples) -> None:
        """Adds audio; waits while too much of it is not sent. Dropped where the turn failed."""
        while self.full:
            self._room.clear()
            await self._room.wait()
        if self._over or not len(samples):
            return
        self._waiting.append(samples)
        self._held += len(samples)
        self.samples += len(samples)
        self._more.set()

    def end(self) -> None:
        """No more audio comes."""
        self.ended = True
        self._more.set()

    async def updates(self) -> AsyncGenerator[LiveUpdate, None]:
        """Yields what is new after each piece, and what `end` brings. Raises: RequestError, TransportError.

        Left early, it frees the stream on the server.
        """
        try:
            async with self._stream as stream:
                while True:
                    await self._wait()
                    samples, ended = self._take(), self.ended
                    if ended:
                        yield await stream.end(samples)
                        return
                    yield await stream.send(samples)
        finally:
            self._over = True
            self._room.set()

    async def _wait(self) -> None:
        """Returns when there is audio to send, or its end."""
        if self._more.is_set() or not self._stream.latest.received_s:
            await self._more.wait()
            return
        try:
            await asyncio.wait_for(self._more.wait(), _PAUSE_S)
        except asyncio.TimeoutError:
            self._waiting.append(_SILENCE)

    def _take(self) -> Samples:
        taken: Samples = np.concatenate([*self._waiting, np.zeros(0, np.float32)])
        self._waiting.clear()
        self._held = 0
        self._more.clear()
        self._room.set()
        return taken
