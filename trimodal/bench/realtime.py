"""Measures when words of live speech come through the gateway's socket, beside the live stream over gRPC.

    python -m trimodal.bench.realtime

The same streams on each way, all at once, at the pace of speech; the ways take turns, so that they see the
same machine. A word's lag is the time that the client has it, less the time that it was spoken to its end.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soxr
import typer
from rich.console import Console
from websockets.asyncio.client import ClientConnection, connect

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.bench.gateway.process import running_gateway
from trimodal.bench.speech.streams import Pace, run_streams
from trimodal.bench.speech.utterances import Spoken, read_utterances, speak
from trimodal.errors import ServerError
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions

SAMPLES = Path("build/demo/speech/samples")
CHUNK_S = 0.1
STREAMS, SECONDS, TURNS = 8, 20.0, 3
_LIMIT_S = 120.0
_OPENAI_RATE = 24_000
_OPENAI_INPUT = {"format": {"type": "audio/pcm", "rate": _OPENAI_RATE}, "turn_detection": None}
_OPENAI_SESSION = {"type": "transcription", "audio": {"input": _OPENAI_INPUT}}


@dataclass
class Way:
    """One way to the words: the lag of each, in seconds, and the text of each stream."""

    name: str
    lags: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


async def measure(streams: int, seconds: float, turns: int, samples: Path = SAMPLES) -> list[Way]:
    """Runs all ways in turn. Raises: OperatorError when a server cannot start or a stream fails."""
    utterances = read_utterances(samples)
    spoken = [speak(utterances, seconds, seed) for seed in range(streams)]
    direct, openai, vllm = Way("gRPC"), Way("OpenAI's dialect, 24 kHz"), Way("vLLM's dialect")
    options = ServerOptions.on_free_ports("speech", "speech_recognize")
    async with serving(options) as (server, client), running_gateway(server.grpc_url) as (port, _):
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        for turn in range(turns + 1):
            for run in await run_streams(client, spoken, policy=None, chunk_s=CHUNK_S):
                if run.refused or run.failed:
                    raise ServerError(run.refused or run.failed)
                if turn:  # the first warms up
                    direct.lags += [word.lag for word in run.words]
                    direct.texts.append(run.text.strip())
            for way, play in ((openai, _openai), (vllm, _vllm)):
                # Streams do not begin at one moment; run_streams lets none begin so either.
                delays = np.random.default_rng(0).uniform(0.0, 1.0, streams).tolist()
                counted = way if turn else Way("")
                await asyncio.gather(
                    *(play(url, one, counted, delay) for one, delay in zip(spoken, delays, strict=True))
                )
    return [direct, openai, vllm]


async def _openai(url: str, spoken: Spoken, way: Way, delay: float) -> None:
    await asyncio.sleep(delay)
    samples = soxr.resample(spoken.samples, SAMPLE_RATE, _OPENAI_RATE)
    async with connect(f"{url}?intent=transcription") as socket:
        await _put(socket, "session.update", session=_OPENAI_SESSION)
        last = "conversation.item.input_audio_transcription.completed"
        await _play(socket, samples, _OPENAI_RATE, {}, last, way)


async def _vllm(url: str, spoken: Spoken, way: Way, delay: float) -> None:
    await asyncio.sleep(delay)
    async with connect(url) as socket:
        await _put(socket, "session.update", model="speech")
        await _put(socket, "input_audio_buffer.commit")
        await _play(socket, spoken.samples, SAMPLE_RATE, {"final": True}, "transcription.done", way)


async def _play(
    socket: ClientConnection, samples: Samples, rate: int, final: dict[str, Any], last: str, way: Way
) -> None:
    """Sends audio as it is spoken, then the end; notes the words as they come."""
    pace, size = Pace(), round(CHUNK_S * rate)

    async def send() -> None:
        for at in range(0, len(samples), size):
            chunk = samples[at : at + size]
            await pace.until((at + len(chunk)) / rate)
            pcm = (chunk * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes()
            await _put(socket, "input_audio_buffer.append", audio=base64.b64encode(pcm).decode())
        await _put(socket, "input_audio_buffer.commit", **final)

    sending = asyncio.ensure_future(send())
    try:
        while True:
            event = json.loads(await asyncio.wait_for(socket.recv(), _LIMIT_S))
            if event["type"] == "error":
                raise ServerError(f"the gateway refused: {event['error']}")
            way.lags += [pace.now() - word["end"] for word in event.get("words", ())]
            if event["type"] == last:
                way.texts.append(event["transcript"] if "transcript" in event else event["text"])
                return
    finally:
        sending.cancel()


async def _put(socket: ClientConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


def show(ways: Sequence[Way], console: Console) -> None:
    """Prints a row for each way."""
    table = make_table("lag of words (ms)", "way|words|p50|p95|p95 added|texts as over gRPC")
    direct = ways[0]
    for way in ways:
        same = (Counter(way.texts) & Counter(direct.texts)).total()
        added = milliseconds(way.lags, 95) - milliseconds(direct.lags, 95)
        table.add_row(
            way.name,
            str(len(way.lags)),
            f"{milliseconds(way.lags, 50):.0f}",
            f"{milliseconds(way.lags, 95):.0f}",
            "" if way is direct else f"{added:+.0f}",
            "" if way is direct else f"{same} of {len(direct.texts)}",
        )
    console.print(table)


def main(
    streams: Annotated[int, typer.Option(min=1, help="at once")] = STREAMS,
    seconds: Annotated[float, typer.Option(min=1, help="of each stream")] = SECONDS,
    turns: Annotated[int, typer.Option(min=1, help="rounds of each way")] = TURNS,
) -> None:
    """Measures when words come through the gateway's socket."""
    show(asyncio.run(measure(streams, seconds, turns)), Console(highlight=False))


if __name__ == "__main__":
    typer.run(main)
