"""Measures how long an answer goes on in a live talk after its listener cancels it or begins to speak.

    python -m trimodal.bench.interruption

The assistant speaks about a picture without end, on a fake llm with steps of fixed length and one slot; what
hears and sees is the demo's. Speech is a recording, sent at the pace of a microphone. Time counts from the
first sound of its first word, or from response.cancel. The generation is over when another request, which
waits for its slot, gets it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soxr
import typer
from rich.console import Console
from websockets.asyncio.client import ClientConnection, connect

from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.bench.gateway.process import running_gateway
from trimodal.bench.speech.streams import Pace
from trimodal.bench.speech.utterances import Utterance, read_utterances
from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions

PICTURE = Path("build/demo/vision/samples/digit-7-a.png")
RECORDINGS = Path("build/demo/speech/questions")
QUESTION = "which digit is this?"
TURNS = 20
ENGINE = {"engine": "fake", "fake_step_ms": "20", "fake_answer": "word " * 400, "max_num_seqs": "1"}
_RATE = 24_000
_CHUNK_S = 0.02
_BEFORE_S = 1.0  # of the answer, before it is interrupted
_LIMIT_S = 30.0


@dataclass
class Interruption:
    """One way to interrupt; seconds from its begin to each thing that follows.

    Attributes:
        heard: the client is told that somebody speaks. told: it is told that the answer is over.
        over: the generation is.
    """

    name: str
    heard: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)
    over: list[float] = field(default_factory=list)


class Talk:
    """One session; notes when which kind of event came first."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._came: dict[str, float] = {}
        self._news = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def put(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def came(self, kind: str) -> float:
        """When the first event of this kind came. Raises: ServerError, TimeoutError."""
        while kind not in self._came:
            if self._reading.done():
                self._reading.result()
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), _LIMIT_S)
        return self._came[kind]

    async def _read(self) -> None:
        try:
            async for frame in self._socket:
                event = json.loads(frame)
                if event["type"] == "error":
                    raise ServerError(f"the gateway refused: {event['error']}")
                self._came.setdefault(event["type"], time.monotonic())
                self._news.set()
        finally:
            self._news.set()


async def measure(turns: int) -> list[Interruption]:
    """Interrupts so many answers in each way, in turn. Raises: OperatorError, TimeoutError."""
    recordings = read_utterances(RECORDINGS)
    cancelled, spoken = Interruption("cancel"), Interruption("speech")
    options = ServerOptions.on_free_ports("assistant", changes={"llm": ENGINE})
    async with serving(options) as (server, client), running_gateway(server.grpc_url) as (port, _):
        url = f"ws://127.0.0.1:{port}/v1/realtime?model=assistant"
        for turn in range(turns + 1):
            warm = turn == 0  # not counted
            async with answered(url) as talk:
                await _cancel(talk, Interruption("") if warm else cancelled, client)
            recording = recordings[turn % len(recordings)]
            async with answered(url) as talk:
                await _speak(talk, Interruption("") if warm else spoken, client, recording)
    return [cancelled, spoken]


@asynccontextmanager
async def answered(url: str) -> AsyncIterator[Talk]:
    """A session in which a question has begun to be answered."""
    picture = "data:image/png;base64," + base64.b64encode(PICTURE.read_bytes()).decode()
    content = [{"type": "input_image", "image_url": picture}, {"type": "input_text", "text": QUESTION}]
    detection = {"type": "server_vad", "create_response": False}
    audio = {"input": {"format": {"type": "audio/pcm", "rate": _RATE}, "turn_detection": detection}}
    async with connect(url) as socket:
        talk = Talk(socket)
        await talk.put("session.update", session={"type": "realtime", "audio": audio})
        item = {"type": "message", "role": "user", "content": content}
        await talk.put("conversation.item.create", item=item)
        await talk.put("response.create", response={"max_output_tokens": 900})
        await talk.came("response.output_text.delta")
        yield talk


async def _cancel(talk: Talk, way: Interruption, client: Client) -> None:
    over = asyncio.ensure_future(_slot(client))
    await asyncio.sleep(_BEFORE_S)
    began = time.monotonic()
    await talk.put("response.cancel")
    way.told.append(await talk.came("response.done") - began)
    way.over.append(await over - began)


async def _speak(talk: Talk, way: Interruption, client: Client, said: Utterance) -> None:
    """Silence, then a recording, in pieces as a microphone gives them."""
    silence = np.zeros(round(_BEFORE_S * SAMPLE_RATE), np.float32)
    samples = soxr.resample(np.concatenate((silence, said.samples, silence)), SAMPLE_RATE, _RATE)
    data = (samples * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes()
    first = _BEFORE_S + said.words[0].start
    pace = Pace()
    began = time.monotonic() - pace.now() + first
    over = asyncio.ensure_future(_slot(client))
    size = round(_CHUNK_S * _RATE) * 2
    for at in range(0, len(data), size):
        await pace.until((at + size) / 2 / _RATE)
        await talk.put("input_audio_buffer.append", audio=base64.b64encode(data[at : at + size]).decode())
    way.heard.append(await talk.came("input_audio_buffer.speech_started") - began)
    way.told.append(await talk.came("response.done") - began)
    way.over.append(await over - began)
    await talk.came("conversation.item.input_audio_transcription.completed")


async def _slot(client: Client) -> float:
    """Waits for the slot, and returns when it was given."""
    sent = time.monotonic()
    return sent + (await client.complete(QUESTION, max_tokens=1)).note.queue_ms / 1e3


def show(ways: Sequence[Interruption], console: Console) -> None:
    """Prints a row for each way."""
    table = make_table(
        "an answer is interrupted (ms)",
        "by|times|heard p50|p95|told p50|p95|over p50|p95|since heard p50|p95",
    )
    for way in ways:
        since = [over - heard for over, heard in zip(way.over, way.heard, strict=False)]
        figures = [
            f"{milliseconds(times, percent):.0f}" if times else ""
            for times in (way.heard, way.told, way.over, since)
            for percent in (50, 95)
        ]
        table.add_row(way.name, str(len(way.over)), *figures)
    console.print(table)


def main(turns: Annotated[int, typer.Option(min=1, help="interruptions of each way")] = TURNS) -> None:
    """Measures how long an answer goes on after it is interrupted."""
    show(asyncio.run(measure(turns)), Console(highlight=False))


if __name__ == "__main__":
    typer.run(main)
