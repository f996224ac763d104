"""Floods a gateway with one key in many ways, while another key's chats have to be answered all the same."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import soundfile
from websockets.asyncio.client import connect

from tests.redteam.stack import Stack, stack
from tests.redteam.tenants import chat

Flood = Callable[[httpx.AsyncClient, Stack], Awaitable[object]]
LIMITS = {"max_streams": 8, "tokens_per_minute": 200_000, "audio_seconds_per_minute": 3_600}
AT_ONCE, CHATS = 24, 12
MOST_MEMORY = 1 << 30  # that a flood may add
# A flood answers with one of these, or is cut off.
REFUSALS = {200, 400, 401, 404, 408, 413, 415, 429, 431, 503}


def posts(path: str, body: object, **headers: str) -> Flood:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def flood(client: httpx.AsyncClient, served: Stack) -> object:
        try:
            answer = await client.post(path, content=raw, headers=headers)
        except httpx.HTTPError:  # cut off, or its own turn does not come: who floods may wait
            return None
        assert answer.status_code in REFUSALS, answer.text
        return answer.status_code

    return flood


async def _unread(client: httpx.AsyncClient, served: Stack) -> None:
    """Asks for a long stream, and does not read it."""
    body = chat("a long one", max_tokens=900, stream=True)
    with suppress(httpx.HTTPError):
        async with client.stream("POST", "/v1/chat/completions", json=body):
            await asyncio.sleep(0.5)


def _raw(*parts: bytes, pause_s: float = 0.3) -> Flood:
    async def flood(client: httpx.AsyncClient, served: Stack) -> None:
        host, port = served.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        try:
            for part in parts:
                writer.write(part.replace(b"KEY", served.keys["bert"].encode()))
                await asyncio.wait_for(writer.drain(), 5)
                await asyncio.sleep(pause_s)
        except (OSError, asyncio.TimeoutError):
            pass  # it was cut off
        finally:
            writer.close()

    return flood


async def _frames(client: httpx.AsyncClient, served: Stack) -> None:
    """Sends as many events of a session as it can."""
    url = served.url.replace("http://", "ws://")
    audio = base64.b64encode(bytes(4800)).decode()
    frame = json.dumps({"type": "input_audio_buffer.append", "audio": audio})
    headers = {"authorization": f"Bearer {served.keys['bert']}"}
    try:
        async with connect(f"{url}/v1/realtime?intent=transcription", additional_headers=headers) as socket:
            for _ in range(300):
                await asyncio.wait_for(socket.send(frame), 0.2)
    except Exception:  # refused, slowed down or cut off
        return


def _silence(seconds: int) -> str:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(seconds * 16_000, np.float32), 16_000, format="FLAC")
    return base64.b64encode(file.getvalue()).decode()


def _recordings(count: int, seconds: int) -> dict[str, object]:
    part = {"type": "input_audio", "input_audio": {"data": _silence(seconds), "format": "wav"}}
    return {"model": "assistant", "messages": [{"role": "user", "content": [part]}] * count}


def _pictures(count: int) -> dict[str, object]:
    url = "data:image/png;base64," + base64.b64encode(bytes(20_000)).decode()
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"model": "assistant", "messages": [{"role": "user", "content": [part]}] * count}


_TOOLS = [
    {"type": "function", "function": {"name": f"f{n}", "parameters": {"type": "object", "properties": {
        f"p{m}": {"type": "string", "pattern": "(a+)+$"} for m in range(80)
    }}}} for n in range(60)
]  # fmt: skip
_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n"
CHAT_PATH = "/v1/chat/completions"
FLOODS: dict[str, Flood] = {
    "long chats": posts(CHAT_PATH, chat("go on", max_tokens=900)),
    "128 prompts": posts("/v1/completions", {"model": "llm", "prompt": ["x"] * 128, "max_tokens": 64}),
    "2,048 texts": posts("/v1/embeddings", {"model": "embedding", "input": ["word " * 200] * 2048}),
    "60 pictures": posts(CHAT_PATH, _pictures(60)),
    "silence of 580 s, six times": posts(CHAT_PATH, _recordings(6, 580)),
    "4,800 patterns in tools": posts(CHAT_PATH, chat("hi", tools=_TOOLS)),
    "deep JSON": posts(CHAT_PATH, b'{"model":"llm","messages":' + b"[" * 19_000),
    "a million values": posts(CHAT_PATH, b'{"model":"llm","messages":[' + b"{}," * 10**6),
    "JSON in UTF-16": posts(CHAT_PATH, ("[" + "∀," * 10**6).encode("utf-16")),
    "gzip of a gigabyte": posts(
        CHAT_PATH, gzip.compress(bytes(1 << 24)) * 64, **{"content-encoding": "gzip"}
    ),
    "keys that are none": posts(CHAT_PATH, chat("hi"), authorization="Bearer ∀".encode().decode("latin-1")),
    "bodies that do not end": _raw(_HEAD + b"Content-Length: 30000000\r\n\r\n" + b" " * 8_000_000, b" " * 99),
    "headers that drip": _raw(*[b"GET / HTTP/1.1\r\n", *[b"x: y\r\n"] * 5]),
    "two framings": _raw(_HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /"),
    "sockets that say nothing": _raw(b"", b"", b""),
    "streams that are not read": _unread,
    "frames of sessions": _frames,
    "a megabyte to keep": posts("/v1/responses", {"model": "llm", "input": "x" * 200_000}),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What the other key saw: how many of its chats were answered, and how much longer the slow ones took."""

    answered: int
    asked: int
    ratio: float
    grown: int

    @property
    def holds(self) -> bool:
        return self.answered == self.asked and self.grown < MOST_MEMORY


async def flood(served: Stack, name: str, requests: int = 48) -> Outcome:
    """Sends one kind of flood by bert's key, and anna's chats meanwhile."""
    limits = httpx.Limits(max_connections=None)
    to = {"base_url": served.url, "timeout": 30.0}
    hostile = {"authorization": f"Bearer {served.keys['bert']}"}
    good = {"authorization": f"Bearer {served.keys['anna']}"}
    async with (
        httpx.AsyncClient(headers=hostile, limits=limits, **to) as bert,  # type: ignore[arg-type]
        httpx.AsyncClient(headers=good, **to) as anna,  # type: ignore[arg-type]
    ):
        alone, _ = await _ask(anna)
        before = _memory()
        turns = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with turns:
                await FLOODS[name](bert, served)

        flooding = [asyncio.ensure_future(one()) for _ in range(requests)]
        await asyncio.sleep(0.1)
        slow, answered = await _ask(anna)
        for task in flooding:
            task.cancel()
        for ended in await asyncio.gather(*flooding, return_exceptions=True):
            if isinstance(ended, AssertionError):
                raise ended
        del served.triton.requests[:]
    return Outcome(answered, CHATS, slow / alone, _memory() - before)


async def _ask(client: httpx.AsyncClient) -> tuple[float, int]:
    """Seconds of the slower chats (95 %), and how many were answered."""
    took, answered = [], 0
    for number in range(CHATS):
        began = time.perf_counter()
        got = await client.post(CHAT_PATH, json=chat(f"word {number} {began}", max_tokens=8))
        answered += got.status_code == 200
        took.append(time.perf_counter() - began)
    return float(np.quantile(took, 0.95)), answered


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def table(folder: Path, requests: int) -> Iterator[tuple[str, bool]]:
    """A line for each flood, and whether it held."""
    with stack(folder, **LIMITS) as served:
        for name in FLOODS:
            out = asyncio.run(flood(served, name, requests))
            told = f"{out.answered} of {out.asked} chats of another key, p95 {out.ratio:.1f} x"
            failed = "" if out.holds else "  FAILS"
            yield f"{name:32} {told}, {out.grown >> 20} MiB more{failed}", out.holds
