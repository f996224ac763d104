"""Measures one thing each: what three servers serve against one, prefix hits, a rolling restart, a kill."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from trimodal.bench.affinity import FIRST_WORDS, NEXT_WORDS, Way
from trimodal.bench.affinity import TOKENS as ANSWER
from trimodal.bench.balancer.load import Clients, Heard, Tally, listen, rate, speech, steady
from trimodal.bench.balancer.proxy import SERVERS, Proxy
from trimodal.bench.balancer.servers import STREAMS, Fleet
from trimodal.client import Message
from trimodal.errors import ServerError, TrimodalError
from trimodal.speech.engines.fake import VOCABULARY

CLIENTS = 24  # twice what three servers take at once
CHATS, TURNS, AT_ONCE = 27, 4, 6
WORDS = 8  # of a live stream: some 4 s
TEXTS, PICTURES, TALKS = 8, 3, 4  # of the steady load
_WAIT_S = 2.0  # before and after what is done to the servers
_DRAIN_S = 30.0


@dataclass(frozen=True)
class Served:
    """What servers behind the balancer served."""

    servers: int
    tokens_per_s: float
    images_per_s: float
    streams: int  # live streams at once, whose words were all told
    lag_s: float  # of their words, median
    share: dict[str, int]  # server → requests


async def serve(at: Clients, proxy: Proxy, servers: int, seconds: float) -> Served:
    """Texts, then pictures, then more live streams than there is room for.

    Raises: TrimodalError: a text or a picture failed.
    """

    before = proxy.counted("stot", "grpc_least")
    tokens = await rate(at.write, clients=CLIENTS, seconds=seconds)
    images = await rate(at.look, clients=CLIENTS, seconds=seconds)
    after = proxy.counted("stot", "grpc_least")
    heard = await _all_at_once(at, len(SERVERS) * STREAMS + STREAMS // 2)
    lags = sorted(lag for one in heard for lag in one.lags)
    share = {name: after[name] - before[name] for name in SERVERS}
    median = lags[len(lags) // 2] if lags else 0.0
    return Served(servers, tokens, images, len(heard), median, share)


async def _all_at_once(at: Clients, count: int) -> list[Heard]:
    """Opens `count` streams, one shortly after the other. Returns those that heard every word."""

    async def one(seed: int) -> Heard | None:
        await asyncio.sleep(0.05 * seed)
        samples, said = speech(seed, 2 * WORDS)
        try:
            heard = await listen(at, samples, resume=False)
        except TrimodalError:
            return None
        return heard if heard.texts == said else None

    found = await asyncio.gather(*(one(seed) for seed in range(count)))
    return [heard for heard in found if heard]


async def talk(at: Clients, way: Way, seed: int) -> Way:
    """Chats in turns, as trimodal.bench.affinity has them; each names itself where the way says so.

    Raises: TrimodalError.
    """
    generator = random.Random(seed)
    talks: list[list[Message]] = [[] for _ in range(CHATS)]
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int, counted: bool) -> None:
        chat = talks[number]
        client = at.marked(prefix=f"{seed}-{number}") if way.name == "by prefix" else at.marked()
        async with room:
            answer = await client.stream(messages=chat, max_tokens=ANSWER).answer()
        if counted:
            way.prompt += answer.usage.prompt
            way.cached += answer.usage.cached
            way.ttft.append(answer.timing.ttft or 0.0)
        chat.append({"role": "assistant", "content": answer.text})

    for turn in range(TURNS):
        order = random.Random(turn).sample(range(CHATS), CHATS)
        for number in order:
            words = generator.choices(VOCABULARY, k=NEXT_WORDS if turn else FIRST_WORDS)
            talks[number].append({"role": "user", "content": " ".join(words)})
        await asyncio.gather(*(ask(number, turn > 0) for number in order))
    return way


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

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        tally = self.tally
        return {
            "name": self.name,
            "done": dict(tally.done),
            "failed": dict(tally.failed),
            "sentences": sorted(tally.sentences),
            "words": tally.said,
            "words_lost": tally.lost,
            "streams_begun_again": tally.begun_again,
            "at_the_server": self.at_the_server,
            "seconds": self.seconds,
        }


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
