"""Asks each modality one thing of which the right answer is known once it was asked in a calm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from tests.e2e import fakes
from tests.vision.pictures import encode, noise
from trimodal.client import Client, Timeouts
from trimodal.speech.engines.fake import speak

SAID = "the lambda list string"
TOKENS = 50
PHOTO = encode(noise(1000, 1000), "PNG")
NEW_S = 0.9  # for a new connection: a server without descriptors leaves it to the client to give up
HUNG_S = 20.0  # what has not ended by then hangs


class RefusedByGateway(Exception):
    """What the gateway says of a request that it refuses or ends."""


@dataclass
class Clients:
    """The ways to one server; one event loop."""

    client: Client
    http: httpx.AsyncClient
    url: str
    asked: int = 0
    photos: int = 0
    gaps: list[tuple[float, float]] = field(default_factory=list)  # of texts: when, and how long (ITL)

    async def text(self) -> object:
        """A question of its own each time; the fake engine's answer depends on the sum of its bytes alone."""
        self.asked += 1
        unlike = "".join(f"{digit}{9 - int(digit)}" for digit in f"{self.asked:06}")
        last = 0.0
        async with self.client.stream(f"what is {unlike}", max_tokens=TOKENS) as stream:
            async for _ in stream:
                now = time.monotonic()
                if last:
                    self.gaps.append((now, now - last))
                last = now
        return stream.text, stream.finish_reason

    async def picture(self) -> object:
        rows = await self.client.classify([fakes.png(1), fakes.png(2)])
        return [row[0].label for row in rows]

    async def photo(self) -> object:
        """Pictures of 3 MB: one at first, four later."""
        self.photos += 1
        rows = await self.client.classify([PHOTO] * (1 if self.photos == 1 else 4))
        return {row[0].label for row in rows}

    async def new(self) -> object:
        """A picture over a connection of its own."""
        async with Client(
            self.url, timeouts=Timeouts(connect=NEW_S, silence=HUNG_S), connections=1
        ) as client:
            return (await client.classify([fakes.png(1)]))[0][0].label

    async def speech(self) -> object:
        samples, _ = speak(SAID.split())
        async with self.client.listen(policy="vad") as stream:
            for at in range(0, len(samples), len(samples) // 4):
                await stream.send(samples[at : at + len(samples) // 4])
                await asyncio.sleep(0.05)
            await stream.end()
            return stream.text

    async def assistant(self) -> object:
        samples, _ = speak(["what", "is"])
        async with self.client.ask("hi", image=fakes.png(2), audio=samples, max_tokens=20) as stream:
            answer = await stream.answer()
            return stream.heard, answer.text

    async def embedding(self) -> object:
        return (await self.client.embed(["one", "two"])).tolist()

    async def chat(self) -> object:
        """Streamed by the gateway."""
        body = {
            "model": "llm",
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": TOKENS,
            "stream": True,
        }
        text = ""
        async with self.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                raise RefusedByGateway((await answer.aread()).decode(errors="replace"))
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise RefusedByGateway(event["error"]["message"])
                text += event["choices"][0]["delta"].get("content") or ""
                if reason := event["choices"][0]["finish_reason"]:
                    return text, reason
        raise RefusedByGateway("the stream ended without a finish_reason")


Ask = Callable[[Clients], Awaitable[object]]
KINDS: dict[str, Ask] = {
    "text": Clients.text,
    "chat": Clients.chat,
    "picture": Clients.picture,
    "photo": Clients.photo,
    "new": Clients.new,
    "speech": Clients.speech,
    "assistant": Clients.assistant,
    "embedding": Clients.embedding,
}


@contextlib.asynccontextmanager
async def clients(url: str, gateway: str) -> AsyncIterator[Clients]:
    async with (
        Client(url, timeouts=Timeouts(connect=2.0, silence=HUNG_S)) as client,
        httpx.AsyncClient(base_url=gateway, timeout=httpx.Timeout(HUNG_S, connect=5.0)) as http,
    ):
        yield Clients(client, http, url)
