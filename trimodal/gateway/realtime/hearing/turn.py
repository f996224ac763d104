"""Sends one turn's audio to the speech model while it comes, and joins the words that are heard."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress

import numpy as np

from trimodal.audio.live_words import LiveWords
from trimodal.audio.values import MOST_CORRECTED, SAMPLE_RATE, Samples
from trimodal.client.async_iteration import wait_within
from trimodal.client.client import Client
from trimodal.client.errors import Timeout
from trimodal.client.streams.live import Listening
from trimodal.client.values import LiveUpdate

SPEECH = "speech"  # the model
# Audio that waits for the server; then the client's socket is not read until there is room.
HELD_S = 5.0
# … and for so long: the pings of a client that is not read have no answer, and most leave after 20 s.
ANSWER_S = 15.0
# A client that sends nothing for so long is told what is heard meanwhile; of one that speaks, the next
# piece's answer brings it.
_QUIET_S = 0.2


class AudioTurn:
    """Audio from the first `put` to `end`. It is heard by whoever iterates `updates`, once."""

    def __init__(self, client: Client, listening: Listening) -> None:
        self._stream = client.listen(**listening)
        self._waiting: list[Samples] = []
        self._held = 0
        self._begun = self._over = False
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
        """Adds audio; waits while too much of it is not sent. Dropped where the turn failed.

        Raises: Timeout: the server has taken none of what is held for ANSWER_S, since `updates` began.
        """
        while self.full:
            self._room.clear()
            # Before, the end of another turn is waited for (vLLM's dialect), which has bounds of its own.
            # After it, what is held is taken at once.
            limit = ANSWER_S if self._begun else None
            try:
                await wait_within(self._room.wait(), limit)
            except asyncio.TimeoutError:
                raise Timeout(f"no audio was taken for {ANSWER_S:g} s") from None
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
        """Yields what is new after each piece, when it is heard without one, and what `end` brings.

        Raises: RequestError, TransportError. Left early, it frees the stream on the server.
        """
        self._begun = True
        try:
            async with self._stream as stream:
                await self._more.wait()
                while not self.ended:
                    yield await stream.send(self._take())
                    stream.forget()  # who iterates has them: captions may go on for days
                    with suppress(asyncio.TimeoutError):
                        await wait_within(self._more.wait(), _QUIET_S)
                    while not self._more.is_set():
                        if update := await stream.news(self._more):
                            yield update
                yield await stream.end(self._take())
        finally:
            self._over = True
            self._room.set()

    def _take(self) -> Samples:
        taken: Samples = np.concatenate([*self._waiting, np.zeros(0, np.float32)])
        self._waiting.clear()
        self._held = 0
        self._more.clear()
        self._room.set()
        return taken


class TurnText:
    """The text of one turn, which begins `at_s` seconds after the session's audio."""

    def __init__(self, at_s: float = 0.0) -> None:
        self._at_s = at_s
        self._delta = ""  # of the last update
        self._tentative: str | None = ""  # as it was sent last; None: words came since
        self._settled, self._words = "", LiveWords()  # captions may go on for days
        self.text = ""  # with what is corrected of it
        # By the last update: the end of the text with its delta, and what is said in place of it.
        self.correction: dict[str, str] | None = None
        self.whole = ""  # with the words that may still change

    def add(self, update: LiveUpdate) -> None:
        """Adds what is new."""
        self._delta = update.text if self.text else update.text.lstrip()
        self._words.add(update.committed, update.corrections)
        self._settled += "".join(word.text for word in self._words.take(MOST_CORRECTED))
        self.text, self.correction = self.text + self._delta, None
        if update.corrections:  # the whole text is compared: not at each update of captions that run for days
            before, self.text = self.text, (self._settled + self._words.text).lstrip()
            same = len(os.path.commonprefix((before, self.text)))
            if before != self.text:
                self.correction = {"before": before[same:], "text": self.text[same:]}
        self.whole = self.text + update.tentative
        if self._delta:
            self._tentative = None

    def news(self, update: LiveUpdate, *, tentative: bool) -> Iterator[tuple[str, dict[str, object]]]:
        """Kinds and fields of the events that tell of the update that was added last.

        All deltas, joined, are the text before corrections. Their words have times in the session's audio.

        Args:
            tentative: whether corrections are told, and what follows the text and may still change: where
                that is new, and after each delta, so that no client has to know what a delta made final.
        """
        if self._delta:
            words = [
                {
                    "word": word.text.strip(),
                    "start": round(self._at_s + word.start, 3),
                    "end": round(self._at_s + word.end, 3),
                }
                for word in update.committed
            ]
            yield "delta", {"delta": self._delta, "words": words}
        if not tentative:
            return
        if self.correction:
            yield "corrected", {**self.correction}
        guess = update.tentative if self.text else update.tentative.lstrip()
        if guess != self._tentative:
            self._tentative = guess
            yield "tentative", {"text": guess}
