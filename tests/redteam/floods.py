"""Floods a gateway with one key in many ways, while another key's chats have to be answered all the same."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import numpy as np
import soundfile
from websockets.asyncio.client import connect

from tests.redteam.stack import Stack, stack
from tests.redteam.tenants import chat
from trimodal.client.transports.base import Request

Flood = Callable[[httpx.AsyncClient, "Target"], Awaitable[object]]
LIMITS = {
    "max_streams": 8,
    "requests_per_minute": 600,
    "images_per_minute": 600,
    "tokens_per_minute": 200_000,
    "audio_seconds_per_minute": 3_600,
}
AT_ONCE, CHATS, _ROUNDS = 24, 12, 20
MOST_MEMORY = 1 << 30  # that a flood may add
MOST_RATIO = 3.0
# As fast as a small model on a few CPUs.
ENGINE: Mapping[str, object] = {"fake_step_ms": 10.0, "fake_prefill_us": 100.0}
# A flood answers with one of these, or is cut off.
REFUSALS = {200, 400, 401, 404, 408, 413, 415, 429, 431, 503}


def posts(path: str, body: object, **headers: str | bytes) -> Flood:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def flood(client: httpx.AsyncClient, target: Target) -> object:
        try:
            answer = await client.post(path, content=raw, headers=headers)
        except httpx.HTTPError:  # cut off, or its own turn does not come: who floods may wait
            return None
        assert answer.status_code in REFUSALS, answer.text
        return answer.status_code

    return flood


async def _unread(client: httpx.AsyncClient, target: Target) -> None:
    """Asks for a long stream, and does not read it."""
    body = chat("a long one", max_tokens=900, stream=True)
    with suppress(httpx.HTTPError):
        async with client.stream("POST", "/v1/chat/completions", json=body):
            await asyncio.sleep(0.5)


def _raw(*parts: bytes, pause_s: float = 0.3) -> Flood:
    async def flood(client: httpx.AsyncClient, target: Target) -> None:
        host, port = target.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        try:
            for part in parts:
                writer.write(part.replace(b"KEY", target.key.encode()))
                await asyncio.wait_for(writer.drain(), 5)
                await asyncio.sleep(pause_s)
        except (OSError, asyncio.TimeoutError):
            pass  # it was cut off
        finally:
            writer.close()

    return flood


async def _frames(client: httpx.AsyncClient, target: Target) -> None:
    """Sends as many events of a session as it can."""
    url = target.url.replace("http://", "ws://")
    audio = base64.b64encode(bytes(4800)).decode()
    frame = json.dumps({"type": "input_audio_buffer.append", "audio": audio})
    headers = {"authorization": f"Bearer {target.key}"}
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
_SESSION = (
    b"GET /v1/realtime?intent=transcription HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
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
    "keys that are none": posts(CHAT_PATH, chat("hi"), authorization="Bearer ∀".encode()),
    "bodies that do not end": _raw(_HEAD + b"Content-Length: 30000000\r\n\r\n" + b" " * 8_000_000, b" " * 99),
    "whole large bodies": posts(CHAT_PATH, b'{"model":"llm","messages":"' + b"x" * 33_000_000 + b'"}'),
    "headers that drip": _raw(*[b"GET / HTTP/1.1\r\n", *[b"x: y\r\n"] * 5]),
    "two framings": _raw(_HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /"),
    "sockets that say nothing": _raw(b"", b"", b""),
    "streams that are not read": _unread,
    "frames of sessions": _frames,
    "requests sent ahead": _raw(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 100_000),
    "pings of sessions": _raw(_SESSION, b"\x89\x80\0\0\0\0" * 10**6),
    "parts of one message": _raw(_SESSION + b"\x01\x80\0\0\0\0", b"\x00\x80\0\0\0\0" * 10**6),
    "a megabyte to keep": posts("/v1/responses", {"model": "llm", "input": "x" * 200_000}),
}  # fmt: skip


class _Unrecorded(list[Request]):
    """Keeps none: a server does not, and the recordings in them would count as the gateway's memory."""

    def append(self, request: Request) -> None:
        pass


@dataclass(frozen=True)
class Target:
    """Who floods knows no more: where, and its own key."""

    url: str
    key: str


@dataclass(frozen=True)
class Outcome:
    """What the other key saw: chats that were answered, the slow ones' time to first text (95 %) and how much
    longer that is than alone, pages that said "not ready"; and by how many bytes the server grew."""

    answered: int
    asked: int
    ttft_s: float
    ratio: float
    unready: int
    grown: int

    @property
    def holds(self) -> bool:
        return self.answered == self.asked and not self.unready and self.grown < MOST_MEMORY

    @property
    def line(self) -> str:
        told = f"{self.answered} of {self.asked} chats of another key"
        told += f", TTFT p95 {self.ttft_s * 1e3:.0f} ms, {self.ratio:.1f} x alone"
        return f"{told}; {self.unready} times not ready, {self.grown >> 20} MiB more"


@contextmanager
def hostile(served: Stack) -> Iterator[Connection]:
    """A process of bert's, whose work takes nothing from the gateway's: send it a flood's name, then None."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    target = Target(served.url, served.keys["bert"])
    process = context.Process(target=_flood_when_told, args=(theirs, target), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.recv() == "ready"
        yield ours
    finally:
        ours.close()
        process.join(30)


def _flood_when_told(told: Connection, target: Target) -> None:
    told.send("ready")
    while True:
        try:
            name = told.recv()
        except EOFError:
            return
        told.send(asyncio.run(_flooding(told, target, FLOODS[name])))


async def _flooding(told: Connection, target: Target, flood: Flood) -> str:
    """Floods until it is told to end; says which answer should not have been given."""
    async with httpx.AsyncClient(
        base_url=target.url,
        headers={"authorization": f"Bearer {target.key}"},
        limits=httpx.Limits(max_connections=None),
        timeout=30.0,
    ) as client:
        end = asyncio.ensure_future(asyncio.to_thread(told.recv))

        async def on() -> None:
            while not end.done():  # before Python 3.12 wait_for may swallow that it is cancelled
                await flood(client, target)

        flooding = [asyncio.ensure_future(on()) for _ in range(AT_ONCE)]
        await asyncio.wait([*flooding, end], return_when=asyncio.FIRST_COMPLETED)
        for task in flooding:
            task.cancel()
        ended = await asyncio.gather(*flooding, return_exceptions=True)
        await end
    return "; ".join(repr(one) for one in ended if isinstance(one, Exception))


def _anna(served: Stack) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=served.url, headers={"authorization": f"Bearer {served.keys['anna']}"}, timeout=30.0
    )


async def alone(served: Stack, seconds: float = 0.0) -> float:
    """The slow chats' time to first text (95 %) where nobody floods."""
    async with _anna(served) as anna:
        return (await _ask(anna, seconds)).p95


async def flood(served: Stack, bert: Connection, name: str, calm_s: float, seconds: float = 0.0) -> Outcome:
    """Has bert flood in one way, for as long as anna's chats take, and so many seconds at least.

    Args:
        calm_s: what `alone` said. What an earlier flood has left to do is waited for.
    """
    served.triton.requests = _Unrecorded()
    async with _anna(served) as anna:
        for _ in range(_ROUNDS):
            if (await _ask(anna, 0.0)).p95 <= 2 * calm_s:
                break
        before = _memory()
        bert.send(name)
        await asyncio.sleep(0.1)
        slow = await _ask(anna, seconds)
        bert.send(None)
        wrong = await asyncio.to_thread(bert.recv)
        assert not wrong, wrong
    asked, ratio = len(slow.ttfts), slow.p95 / calm_s
    return Outcome(slow.answered, asked, slow.p95, ratio, slow.unready, _memory() - before)


@dataclass
class _Asked:
    ttfts: list[float] = field(default_factory=list)
    answered: int = 0
    unready: int = 0

    @property
    def p95(self) -> float:
        return float(np.quantile(self.ttfts, 0.95))


async def _ask(client: httpx.AsyncClient, seconds: float) -> _Asked:
    """Chats one after the other, CHATS of them or more."""
    asked, end = _Asked(), time.perf_counter() + seconds
    while len(asked.ttfts) < CHATS or time.perf_counter() < end:
        body = chat(f"word {len(asked.ttfts)} {end}", max_tokens=8, stream=True)
        began = first = time.perf_counter()
        last = ""
        try:
            async with client.stream("POST", CHAT_PATH, json=body) as stream:
                async for line in stream.aiter_lines():
                    if '"content":"' in line.replace(" ", "") and first == began and '""' not in line:
                        first = time.perf_counter()
                    last = line or last
        except httpx.HTTPError:
            last = ""
        asked.answered += last == "data: [DONE]" and first > began
        asked.ttfts.append((first if first > began else time.perf_counter()) - began)
        asked.unready += (await client.get("/ready")).status_code != 200
    return asked


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def table(folder: Path, seconds: float) -> Iterator[tuple[str, bool]]:
    """A line for each flood, and whether it held."""
    with stack(folder, ENGINE, **LIMITS) as served, hostile(served) as bert:
        calm_s = asyncio.run(alone(served, seconds))
        yield f"{'nobody':32} TTFT p95 {calm_s * 1e3:.0f} ms", True
        for name in FLOODS:
            out = asyncio.run(flood(served, bert, name, calm_s, seconds))
            held = out.holds and out.ratio <= MOST_RATIO
            yield f"{name:32} {out.line}{'' if held else '  FAILS'}", held
