"""Keeps clients busy through the balancer, and counts what became of each request and of each spoken word."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np

from tests.e2e.fakes import png
from tests.e2e.fleet.proxy import KEY, SERVERS, Proxy
from tests.e2e.fleet.servers import Fleet
from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.client import Client
from trimodal.client.transports.base import Request, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.client.transports.tensors import strings
from trimodal.errors import ServerError, TrimodalError
from trimodal.speech.engines.fake import VOCABULARY, speak

BEARER = {"authorization": f"Bearer {KEY}"}
TOKENS = 20
CHUNK_S = 0.2
_MARGIN_S = 0.02  # between the end of a word that is final and what is sent again
_TRIES = 100
_PAUSE_S = 0.1
_WAIT_S = 2.0  # before and after what is done to the servers
_DRAIN_S = 30.0
TEXTS, PICTURES, TALKS, WORDS = 8, 3, 4, 8  # of the steady load; words of a stream: some 4 s
_TIMEOUTS = Timeouts(connect=5.0, silence=30.0, total=60.0)


class Clients:
    """Clients of the balancer at one address, over one set of connections."""

    def __init__(self, address: str) -> None:
        self._transport = GrpcTransport(address, _TIMEOUTS, connections=4)
        self._client = Client(transport=self._transport, timeouts=_TIMEOUTS)
        self._picture = strings([png(1)]).reshape(1, 1)

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
        assert outputs["labels"].reshape(-1)[0] == b"class 1", outputs
        tell(1)

    async def aclose(self) -> None:
        await self._client.aclose()


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
class LiveTranscript:
    """What became of one live stream."""

    words: list[Word] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    begun_again: int = 0

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]


async def listen(at: Clients, samples: Samples, *, resume: bool = True) -> LiveTranscript:
    """Speaks in real time, each stream with an x-trimodal-session of its own.

    A stream that is lost is begun again, from the end of its last final word: that takes a client that
    keeps what is not final yet.

    Raises:
        TrimodalError: it was refused or lost, and is not to be resumed, or too often.
    """
    heard = LiveTranscript()
    clock = asyncio.get_running_loop().time
    began, size = clock(), round(CHUNK_S * SAMPLE_RATE)
    for _ in range(_TRIES):
        base = round((heard.words[-1].end + _MARGIN_S) * SAMPLE_RATE) if heard.words else 0
        try:
            async with at.marked(session=secrets.token_hex(16)).listen(policy="edge") as stream:
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


def _take(heard: LiveTranscript, words: tuple[Word, ...], offset: float, now: float) -> None:
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


@dataclass
class Disturbed:
    """A steady load while something was done to its servers.

    Attributes:
        at_the_server: requests that were on the server when it was killed, as the balancer counts them.
        seconds: of each server, from its drain or its end until it was used again.
    """

    name: str
    tally: Tally
    at_the_server: int = 0
    seconds: list[float] = field(default_factory=list)


async def restart_all(at: Clients, proxy: Proxy, fleet: Fleet) -> Disturbed:
    """Drains, ends, starts and uses each server again, one after the other, under a steady load.

    Raises: ServerError: a server did not drain or start in time.
    """
    seconds = []
    async with steady(at, texts=TEXTS, pictures=PICTURES, streams=TALKS, words=WORDS) as tally:
        await asyncio.sleep(_WAIT_S)
        for place, name in enumerate(SERVERS):
            began = time.monotonic()
            await asyncio.to_thread(_restart, proxy, fleet, place, name)
            seconds.append(time.monotonic() - began)
            await asyncio.sleep(_WAIT_S)
    return Disturbed("rolling restart", tally, seconds=seconds)


def _restart(proxy: Proxy, fleet: Fleet, place: int, name: str) -> None:
    metrics = fleet.servers[place].metrics_url
    code, told = proxy.drain(name, "--metrics", metrics, "--timeout", f"{_DRAIN_S:g}")
    if code:
        raise ServerError(told.strip())
    fleet.servers[place].stop()
    fleet.again(place)
    code, told = proxy.drain(name, "--resume")
    if code:
        raise ServerError(told.strip())


async def kill_one(at: Clients, proxy: Proxy, fleet: Fleet, place: int = 1) -> Disturbed:
    """Kills all processes of a server under a steady load, and starts it again.

    Raises: ServerError: it did not start.
    """
    async with steady(at, texts=TEXTS, pictures=PICTURES, streams=TALKS, words=WORDS) as tally:
        await asyncio.sleep(_WAIT_S)
        there = proxy.counted("scur")[SERVERS[place]]
        began = time.monotonic()
        await asyncio.to_thread(fleet.servers[place].kill)
        await asyncio.sleep(2 * _WAIT_S)
        await asyncio.to_thread(fleet.again, place)
        await asyncio.to_thread(proxy.settle, len(SERVERS))
        seconds = [time.monotonic() - began]
        await asyncio.sleep(_WAIT_S)
    return Disturbed("one killed", tally, there, seconds)
