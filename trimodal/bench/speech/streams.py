"""Plays streams to the server at the pace of speech and notes when the client held which word.

The clock is absolute: chunk n goes out when its last sample would have been spoken,
counted from the stream's begin, so delays never add up. A late answer makes later chunks
late, as with a microphone whose samples wait in a buffer; how late is noted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from trimodal.audio.values import SAMPLE_RATE, PolicyName, Samples, Word
from trimodal.bench.speech.utterances import Spoken
from trimodal.client import Client, LiveStream, LiveUpdate
from trimodal.errors import TrimodalError, Unavailable

START_WITHIN_S = 1.0


class Pace:
    """The stream clock: seconds since the stream's first sample was spoken."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._began = clock()

    def now(self) -> float:
        return self._clock() - self._began

    async def until(self, seconds: float) -> float:
        """Waits for a moment of the stream; returns by how much it is over."""
        while (left := seconds - self.now()) > 0:
            await self._sleep(left)
        return self.now() - seconds


@dataclass(frozen=True)
class HeldWord:
    """A committed word, and the stream time at which the client held it."""

    word: Word
    at: float

    @property
    def lag(self) -> float:
        """Audio spoken by then, less the word's end."""
        return self.at - self.word.end


@dataclass
class StreamRun:
    """One stream as its client saw it. Times in seconds of the stream.

    Attributes:
        first: when the first text came, committed or tentative; None: no text came.
        server_lags: the server's own figure in each answer that brought committed words.
        late: of each chunk, behind its due time: high where answers, or this machine, are slow.
        flush: from END to its answer.
        sent: audio that the server took.
        refused, failed: why the stream was not taken, or why it ended early; "" if neither.
    """

    words: list[HeldWord] = field(default_factory=list)
    first: float | None = None
    server_lags: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    flush: float = 0.0
    sent: float = 0.0
    refused: str = ""
    failed: str = ""

    @property
    def text(self) -> str:
        """All committed words."""
        return "".join(held.word.text for held in self.words)

    def hold(self, update: LiveUpdate, now: float) -> None:
        """Notes an answer that the client holds since `now`."""
        if self.first is None and (update.committed or update.tentative.strip()):
            self.first = now
        self.words += [HeldWord(word, now) for word in update.committed]
        if update.committed:
            self.server_lags.append(update.lag_s)


async def play(stream: LiveStream, samples: Samples, chunk_s: float, pace: Pace, run: StreamRun) -> None:
    """Sends all of `samples` in chunks of `chunk_s` at the pace of speech, then END; notes it in `run`."""
    size = round(chunk_s * SAMPLE_RATE)
    for at in range(0, len(samples), size):
        chunk = samples[at : at + size]
        run.late.append(await pace.until((at + len(chunk)) / SAMPLE_RATE))
        run.hold(await stream.send(chunk), pace.now())
        run.sent += len(chunk) / SAMPLE_RATE
    ended = pace.now()
    run.hold(await stream.end(), pace.now())
    run.flush = pace.now() - ended


async def run_streams(
    client: Client,
    spoken: Sequence[Spoken],
    *,
    policy: PolicyName | None,
    chunk_s: float,
    delays: Sequence[float] | None = None,
) -> list[StreamRun]:
    """All streams together; a refused one is a run that says so.

    Args:
        policy: of every stream; None: the model's.
        delays: seconds after which each stream begins; None: at random within the first second.
    """
    rng = random.Random(0)
    delays = delays or [rng.uniform(0.0, START_WITHIN_S) for _ in spoken]

    async def one(told: Spoken, delay: float) -> StreamRun:
        run = StreamRun()
        await asyncio.sleep(delay)
        try:
            async with client.listen(policy=policy) as stream:
                await play(stream, told.samples, chunk_s, Pace(), run)
        except TrimodalError as error:
            if isinstance(error, Unavailable) and not run.sent:
                run.refused = str(error)
            else:
                run.failed = str(error)
        return run

    return list(await asyncio.gather(*map(one, spoken, delays)))
