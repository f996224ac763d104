"""Keeps clients busy through the balancer, and counts what became of each request and of each spoken word."""

from __future__ import annotations

import asyncio
import io
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.bench.balancer.proxy import KEY
from trimodal.client import Client
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.client.transports.tensors import strings
from trimodal.errors import TrimodalError
from trimodal.speech.engines.fake import VOCABULARY, speak

BEARER = {"authorization": f"Bearer {KEY}"}
TOKENS = 20
CHUNK_S = 0.2
_GOING_S = 3.0  # until what is counted begins
_MARGIN_S = 0.02  # between the end of a word that is final and what is sent again
_TRIES = 100
_PAUSE_S = 0.1
_TIMEOUTS = Timeouts(connect=5.0, silence=30.0, total=60.0)


class Clients:
    """Clients of the balancer at one address, over one set of connections."""

    def __init__(self, address: str) -> None:
        self._transport = GrpcTransport(address, _TIMEOUTS, connections=4)
        self._client = Client(transport=self._transport, timeouts=_TIMEOUTS)
        file = io.BytesIO()
        Image.new("RGB", (32, 32), (1, 0, 0)).save(file, "PNG")
        self._picture = strings([file.getvalue()]).reshape(1, 1)

    def marked(self, **headers: str) -> Client:
        """A client whose requests carry the key, and `headers` with x-trimodal- in front."""
        more = {f"x-trimodal-{name}": value for name, value in headers.items()}
        return self._client.with_metadata({**BEARER, **more})

    async def write(self, tell: Callable[[int], None] = lambda count: None) -> None:
        """One text; `tell` gets the tokens of each part of it. Raises: TrimodalError."""
        async for delta in self.marked().stream(secrets.token_hex(8), max_tokens=TOKENS):
            tell(delta.tokens)

    async def look(self, tell: Callable[[int], None] = lambda count: None) -> None:
        """One picture. Raises: TrimodalError, AssertionError."""
        request = Request("vision", {"image": self._picture}, metadata=BEARER)
        outputs = await self._transport.infer(request, _TIMEOUTS)
        assert outputs["labels"].reshape(-1)[0] == b"one", outputs
        tell(1)

    async def aclose(self) -> None:
        await self._client.aclose()


async def rate(
    work: Callable[[Callable[[int], None]], Awaitable[object]], *, clients: int, seconds: float
) -> float:
    """What `clients` get a second, each with one request after the other, once all of them are under way.

    Counted as it comes: a request that waits in a queue beyond the counted time counts for nothing.

    Args:
        work: does one request, and calls its argument with how many tokens or pictures just came.

    Raises: what `work` raises.
    """
    clock = asyncio.get_running_loop().time
    begin = clock() + _GOING_S
    end = begin + seconds
    came = 0

    def tell(count: int) -> None:
        nonlocal came
        if begin <= clock() < end:
            came += count

    async def again() -> None:
        while clock() < end:
            await work(tell)

    await asyncio.gather(*(again() for _ in range(clients)))
    return came / seconds


@asynccontextmanager
async def clients(address: str) -> AsyncIterator[Clients]:
    opened = Clients(address)
    try:
        yield opened
    finally:
        await opened.aclose()


def speech(seed: int, words: int) -> tuple[Samples, list[str]]:
    """Samples that say random words, some with a pause after them, and the words."""
    generator = np.random.default_rng(seed)
    said: list[str | float] = []
    for index in generator.integers(len(VOCABULARY), size=words).tolist():
        said.append(VOCABULARY[index])
        if generator.random() < 0.3:
            said.append(0.8)
    samples, spoken = speak([*said, 0.5])
    return samples, [word.text for word in spoken]


@dataclass
class Heard:
    """What became of one live stream."""

    words: list[Word] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    begun_again: int = 0

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]


async def listen(at: Clients, samples: Samples, *, resume: bool = True) -> Heard:
    """Speaks in real time, each stream with an x-trimodal-session of its own.

    A stream that is lost is begun again, from the end of its last final word: that takes a client that
    keeps what is not final yet.

    Raises:
        TrimodalError: it was refused or lost, and is not to be resumed, or too often.
    """
    heard = Heard()
    clock = asyncio.get_running_loop().time
    began, size = clock(), round(CHUNK_S * SAMPLE_RATE)
    for _ in range(_TRIES):
        base = round((heard.words[-1].end + _MARGIN_S) * SAMPLE_RATE) if heard.words else 0
        try:
            async with at.marked(session=secrets.token_hex(16)).listen(policy="live") as stream:
                for start in range(base, len(samples), size):
                    chunk = samples[start : start + size]
                    await asyncio.sleep(began + (start + len(chunk)) / SAMPLE_RATE - clock())
                    if len(chunk) < size:
                        update = await stream.end(chunk)
                    else:
                        update = await stream.send(chunk)
                    _take(heard, update.committed, base / SAMPLE_RATE, clock() - began)
                if not update.final:
                    _take(heard, (await stream.end()).committed, base / SAMPLE_RATE, clock() - began)
            return heard
        except TrimodalError:
            if not resume:
                raise
            heard.begun_again += 1
            await asyncio.sleep(_PAUSE_S)
    raise TimeoutError(f"a live stream was begun {_TRIES} times")


def _take(heard: Heard, words: tuple[Word, ...], offset: float, now: float) -> None:
    for word in words:
        heard.words.append(Word(word.text, word.start + offset, word.end + offset, word.probability))
        heard.lags.append(now - heard.words[-1].end)


@dataclass
class Tally:
    """What became of all requests of a steady load.

    Attributes:
        failed: kind of work and name of the error → how many.
        said, lost: words; a stream whose words are not those that were said loses all of them.
    """

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    sentences: set[str] = field(default_factory=set)
    said: int = 0
    lost: int = 0
    begun_again: int = 0


@asynccontextmanager
async def steady(at: Clients, *, texts: int, pictures: int, streams: int, words: int) -> AsyncIterator[Tally]:
    """Clients in closed loops while the block lasts; what they have begun is finished at its end."""
    tally, over = Tally(), asyncio.Event()

    async def again(kind: str) -> None:
        while not over.is_set():
            try:
                await (at.write() if kind == "text" else at.look())
            except TrimodalError as error:
                tally.failed[f"{kind} {type(error).__name__}"] += 1
                tally.sentences.add(f"{kind}: {error}")
                await asyncio.sleep(_PAUSE_S)
            else:
                tally.done[kind] += 1

    async def talk(seed: int) -> None:
        while not over.is_set():
            samples, said = speech(seed, words)
            heard = await listen(at, samples)
            tally.said += len(said)
            tally.lost += len(said) if heard.texts != said else 0
            tally.begun_again += heard.begun_again
            tally.done["speech"] += 1
            seed += streams

    tasks = [asyncio.ensure_future(again("text")) for _ in range(texts)]
    tasks += [asyncio.ensure_future(again("picture")) for _ in range(pictures)]
    tasks += [asyncio.ensure_future(talk(seed)) for seed in range(streams)]
    try:
        yield tally
    finally:
        over.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 120.0)
