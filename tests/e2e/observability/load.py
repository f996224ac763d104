"""A little load of every kind on a server of fakes, straight and through its gateway."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import httpx

from tests.e2e import fakes
from trimodal.client import Client
from trimodal.errors import RequestError
from trimodal.speech.engines.fake import speak

MODELS = (*fakes.MODELS, "judge", "assistant")


def changes(directory: Path) -> fakes.Changes:
    """Every model on its fake engine; the llm answers from its cache and has little room."""
    changes = fakes.changes(directory)
    return changes | {"llm": {**changes["llm"], "cache": "semantic", "max_queue": "12"}}


async def load(grpc_url: str, gateway: str, *, seed: int = 0) -> None:
    """One round, of a few seconds. Each `seed` asks other questions."""
    async with Client(grpc_url) as client, httpx.AsyncClient(base_url=gateway, timeout=30) as http:
        await asyncio.gather(texts(http, seed), pictures(client, http), speech(client), asked(client, seed))
        await refused(client, http, seed)


async def texts(http: httpx.AsyncClient, seed: int) -> None:
    """Twelve streamed chats, of which every other begins alike, two asked again; one client leaves."""

    async def chat(number: int, leave: bool = False) -> None:
        question = f"{'the same beginning ' * 30 if number % 2 else ''}question {seed}-{number}"
        body = {"model": "llm", "messages": [{"role": "user", "content": question}], "max_tokens": 40}
        async with http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
            async for _ in answer.aiter_lines():
                if leave:
                    return

    await asyncio.gather(*map(chat, range(12)))
    await asyncio.gather(chat(0), chat(1), chat(99, leave=True))


async def refused(client: Client, http: httpx.AsyncClient, seed: int) -> None:
    """What is wrong, and what there is no room for."""
    answer = await http.post("/v1/chat/completions", json={"model": "llm", "messages": [], "max_tokens": 1})
    assert answer.status_code == 400
    assert (await http.post("/v1/embeddings", json={"model": "none", "input": "x"})).status_code == 404
    flood = (client.complete(f"flood {seed}-{number}", max_tokens=100) for number in range(40))
    ended = await asyncio.gather(*flood, return_exceptions=True)
    assert any(isinstance(one, RequestError) for one in ended), "the queue is larger than the flood"


async def pictures(client: Client, http: httpx.AsyncClient) -> None:
    """Images in batches, one of which is none, and embeddings."""
    files = [fakes.png(red) for red in range(8)]
    await client.classify([*files, b"no picture"], return_exceptions=True)
    texts = [f"text {number}" for number in range(8)]
    await client.embed(texts)
    picture = f"data:image/png;base64,{base64.b64encode(files[1]).decode()}"
    (await http.post("/v1/images/classifications", json={"input": [picture]})).raise_for_status()
    (await http.post("/v1/embeddings", json={"model": "embedding", "input": texts})).raise_for_status()


async def speech(client: Client) -> None:
    """Two recordings at once, then somebody who speaks: recordings have no lag."""
    samples, _ = speak(["one", "two", 1.0, "three", 0.8])
    await asyncio.gather(client.transcribe(samples), client.transcribe(samples))
    async with client.listen() as stream:  # open for longer than a recording
        for begin in range(0, len(samples), 8000):
            await stream.send(samples[begin : begin + 8000])
            await asyncio.sleep(0.5)
        await stream.end()


async def asked(client: Client, seed: int) -> None:
    """A spoken question about a picture, and one that cannot be read."""
    samples, _ = speak(["what", "is", "a", "lambda"])
    await client.ask(f"question {seed}", image=fakes.png(2), audio=samples, max_tokens=10).answer()
    try:
        await client.ask("what is it?", image=b"no picture").answer()
    except RequestError:
        return
    raise AssertionError("no picture, and no error")
