"""Lets thousands of clients vanish, in all modalities: by a cancel, by a reset, in the middle of sending.

Nothing of them may stay: no gauge above zero, no slot, no descriptor; each modality answers after them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.faults.processes import HARMS, LOCK
from tests.chaos.judge import Row
from tests.chaos.load import STEADY, Load
from tests.chaos.operations import Clients, clients
from tests.chaos.served import Served
from tests.e2e import fakes
from trimodal.client import Client
from trimodal.errors import TrimodalError
from trimodal.speech.engines.fake import speak

AT_ONCE = 40
RETRY_S = 3.0  # for which client and gateway leave a server alone that was not there
ANSWER_S = 5.0  # for the first byte of an answer, before its client vanishes
IDLE_S = 75.0  # a stream of speech without END is dropped after 60 s
SPEECH = speak(["what", "is"])[0]
_RESET = struct.pack("ii", 1, 0)
CHAT = {"model": "llm", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100, "stream": True}
IMAGE = "data:image/png;base64," + base64.b64encode(fakes.png(1)).decode()
SEEN = [{"type": "image_url", "image_url": {"url": IMAGE}}, {"type": "text", "text": "what is it"}]


class Crowd:
    """Clients of one server that vanish; which way each takes is drawn by the seed."""

    def __init__(self, served: Served, asked: Clients, seed: int, *, drops: bool) -> None:
        self._served, self._client, self._rng = served, asked.client, random.Random(seed)
        chat, question = "/v1/chat/completions", {**CHAT, "model": "assistant"}
        question["messages"] = [{"role": "user", "content": SEEN}]
        picture = self._over_http({"model": "vision", "input": IMAGE}, "/v1/images/classifications")
        self._ways: dict[str, list[Callable[[], Awaitable[None]]]] = {
            "llm": [self._cancelled_text, self._closed_text, self._over_http(CHAT, chat)],
            "vision": [self._cancelled_picture, picture],
            "speech": [self._left_speech, self._cancelled_speech],
            "assistant": [self._cancelled_question, self._over_http(question, chat)],
        }
        if drops:
            self._ways["speech"].append(self._dropped_speech)
        self.told: Counter[str] = Counter()

    async def vanish(self, each: int) -> None:
        """So many clients of each modality, `AT_ONCE` at a time, in random order."""
        waiting = [kind for kind in self._ways for _ in range(each)]
        self._rng.shuffle(waiting)
        await asyncio.gather(*(self._take(waiting) for _ in range(AT_ONCE)))

    async def _take(self, waiting: list[str]) -> None:
        while waiting:
            way = self._rng.choice(self._ways[waiting.pop()])
            try:
                await asyncio.wait_for(way(), 30.0)
            except (TrimodalError, OSError, asyncio.TimeoutError) as error:
                self.told[f"{type(error).__name__}: {error}"[:120]] += 1

    # By gRPC

    async def _cancelled_text(self) -> None:
        async with self._client.stream("hi", max_tokens=100) as stream:
            for _ in range(self._rng.randrange(4)):
                await anext(stream)

    async def _closed_text(self) -> None:
        """Its connection is closed with the request under way."""
        async with Client(self._served.url, connections=1) as client:
            stream = client.stream("hi", max_tokens=100)
            await anext(stream)

    async def _cancelled_picture(self) -> None:
        await self._soon_cancelled(self._client.classify([fakes.png(1)] * 8))

    async def _cancelled_question(self) -> None:
        stream = self._client.ask("hi", image=fakes.png(1), audio=SPEECH, max_tokens=50)
        await self._soon_cancelled(stream.answer())

    async def _left_speech(self) -> None:
        """It tells of its end, and waits for no words."""
        async with self._client.listen() as stream:
            for _ in range(self._rng.randrange(1, 4)):
                await stream.send(SPEECH)

    async def _cancelled_speech(self) -> None:
        """While a chunk is on its way."""

        async def speak_on() -> None:
            async with self._client.listen() as stream:
                for _ in range(4):
                    await stream.send(SPEECH)

        await self._soon_cancelled(speak_on())

    async def _dropped_speech(self) -> None:
        """Without a word: the server has to find out. One in ten; the others leave."""
        if self._rng.random() < 0.9:
            await self._left_speech()
        else:
            await self._client.listen().send(SPEECH)

    async def _soon_cancelled(self, call: Awaitable[object]) -> None:
        task = asyncio.ensure_future(call)
        await asyncio.sleep(self._rng.uniform(0, 0.1))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    # By HTTP

    def _over_http(self, body: object, path: str) -> Callable[[], Awaitable[None]]:
        async def reset() -> None:
            """Its socket is reset: in the middle of sending, at once, or after the first byte."""
            data = json.dumps(body).encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", self._served.gateway_port)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            try:
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode())
                how = self._rng.randrange(3)
                writer.write(data if how else data[: self._rng.randrange(len(data))])
                await writer.drain()
                if how == 2:
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(reader.read(1), ANSWER_S)
            finally:
                writer.transport.abort()

        return reset


def descriptors(served: Served) -> dict[str, int]:
    """Open ones of each process."""
    parts = set(HARMS) - {"guard", "engine"}
    return {part: len(os.listdir(f"/proc/{served.pid(part)}/fd")) for part in parts}


async def vanish(count: int, directory: Path) -> Row:
    """`count` clients in all, in a server of its own."""
    served = await asyncio.to_thread(Served, directory)
    try:
        row = await vanish_in(served, count)
        row.stop_s = await asyncio.to_thread(served.stop)
        return row
    finally:
        await asyncio.to_thread(served.kill)


async def vanish_in(served: Served, count: int, seed: int = 15, *, drops: bool = True) -> Row:
    """`count` clients in all, of a server that runs on. `drops`: also streams of speech without an end."""
    row = Row(f"vanish-{count}")
    async with clients(served.url, served.gateway) as asked:
        load = Load(asked)
        await load.learn()
        before, restarts = descriptors(served), served.restarts
        crowd = Crowd(served, asked, seed, drops=drops)
        began = time.monotonic()
        await crowd.vanish(count // 4)
        took = time.monotonic() - began
        ended = await asyncio.to_thread(served.came_back, restarts)
        if "lock_exception" in ended:
            row.limit = LOCK  # so busy a machine that a model's process stood still for a second
        elif ended:
            row.missed.append(ended)
        if ended:
            await asyncio.sleep(RETRY_S)
        busy = await asyncio.to_thread(served.idle, IDLE_S)
        row.recovery_s = time.monotonic() - began - took
        after = descriptors(served)
        row.lost = "nothing is left" if not busy else f"still under way: {busy}"
        if busy:
            row.missed.append(row.lost)
        grown = {part: (before[part], now) for part, now in after.items() if now > before[part] + AT_ONCE}
        if grown:
            row.missed.append(f"descriptors grew: {grown}")
        asked_again = [await load.once(kind) for kind in STEADY]
        bad = [one for one in asked_again if one.what != "right"]
        row.missed += [f"after it {one.kind} was {one.what}: {one.error}" for one in bad]
    told = "; ".join(f"{number} {what}" for what, number in crowd.told.most_common(4))
    row.saw = f"{count / took:.0f} a second; told before they vanished: {told or 'none'}"
    return row
