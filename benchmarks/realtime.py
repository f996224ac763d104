"""Makes the table "Realtime": when words of live speech come through the gateway's socket, beside gRPC.

    python -m benchmarks.realtime --turns 2

The same streams on each side, all at once, at the pace of speech; the sides take turns, so that they see the
same machine. A word's lag is the time that the client has it, less the time that it was spoken to its end.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import soxr
import typer
from rich.console import Console
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.processes import running_gateway
from benchmarks.recordings import speech
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.common.serving import serving
from trimodal.bench.load.generator import Send, run
from trimodal.bench.load.statistics import summarise
from trimodal.bench.targets.speech import Speech
from trimodal.bench.targets.taking import Taking, taken
from trimodal.errors import ServerError
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions

CHUNK_S = 0.1
BEGIN_WITHIN_S = 1.0  # streams do not begin at one moment
LIMIT_S = 120.0
OPENAI_RATE = 24_000
OPENAI_INPUT = {"format": {"type": "audio/pcm", "rate": OPENAI_RATE}, "turn_detection": None}
OPENAI_SESSION = {"type": "transcription", "audio": {"input": OPENAI_INPUT}}


def openai_sender(url: str, spoken: list[Samples]) -> Send:
    """Streams in OpenAI's dialect, at 24 kHz."""
    last = "conversation.item.input_audio_transcription.completed"

    async def play(number: int, taking: Taking) -> None:
        samples = soxr.resample(spoken[number], SAMPLE_RATE, OPENAI_RATE)
        async with connect(f"{url}?intent=transcription") as socket:
            await put(socket, "session.update", session=OPENAI_SESSION)
            await play_over(socket, samples, OPENAI_RATE, {}, last, taking)

    return sender(play)


def vllm_sender(url: str, spoken: list[Samples]) -> Send:
    """Streams in vLLM's dialect, at 16 kHz."""

    async def play(number: int, taking: Taking) -> None:
        async with connect(url) as socket:
            await put(socket, "session.update", model="speech")
            await put(socket, "input_audio_buffer.commit")
            final = {"final": True}
            await play_over(socket, spoken[number], SAMPLE_RATE, final, "transcription.done", taking)

    return sender(play)


def sender(play: Callable[[int, Taking], Awaitable[object]]) -> Send:
    return lambda number: taken(lambda taking: play(number, taking))


async def play_over(
    socket: ClientConnection, samples: Samples, rate: int, final: dict[str, Any], last: str, taking: Taking
) -> None:
    """Sends audio as it is spoken, then the end; notes the words as they come. Raises: ServerError."""
    clock, size = asyncio.get_running_loop().time, round(CHUNK_S * rate)
    began = clock()

    async def send() -> None:
        for at in range(0, len(samples), size):
            chunk = samples[at : at + size]
            await asyncio.sleep(max(0.0, began + (at + len(chunk)) / rate - clock()))
            pcm = (chunk * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes()
            await put(socket, "input_audio_buffer.append", audio=base64.b64encode(pcm).decode())
        await put(socket, "input_audio_buffer.commit", **final)

    sending = asyncio.ensure_future(send())
    try:
        while (event := json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S)))["type"] != "error":
            taking.lags += [clock() - began - word["end"] for word in event.get("words", ())]
            if event["type"] == last:
                return
        raise ServerError(f"the gateway refused: {event['error']}")
    finally:
        sending.cancel()


async def put(socket: ClientConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


async def measure(streams: int, seconds: float, turns: int) -> dict[str, list[Any]]:
    """Runs all sides in turn. Raises: OperatorError when a server cannot start."""
    spoken = [speech(seconds, seed) for seed in range(streams)]
    begins = [BEGIN_WITHIN_S * number / streams for number in range(streams)]
    async with (
        serving(ServerOptions.on_free_ports("speech", "speech_recognize")) as (server, client),
        running_gateway(server.grpc_url) as (port, _),
    ):
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        sides = {
            "gRPC, 16 kHz": Speech(client, spoken, chunk_s=CHUNK_S, timeout=LIMIT_S).send,
            "OpenAI's dialect, 24 kHz": openai_sender(url, spoken),
            "vLLM's dialect, 16 kHz": vllm_sender(url, spoken),
        }
        found: dict[str, list[Any]] = {name: [] for name in sides}
        for _ in range(turns + 1):
            for name, send in sides.items():
                found[name].append(await run(send, begins, requests=streams))
    return {name: runs[1:] for name, runs in found.items()}  # the first warms up


def main(
    streams: Annotated[int, typer.Option(min=1, help="at once")] = 8,
    seconds: Annotated[float, typer.Option(min=1, help="of each stream")] = 20.0,
    turns: Annotated[int, typer.Option(min=1, help="rounds of each side")] = 3,
) -> None:
    """Measures when words come through the gateway's socket."""
    table = make_table("lag of words (ms)", "side|words|p50|p95|p95 added")
    direct = 0.0
    for name, runs in asyncio.run(measure(streams, seconds, turns)).items():
        summary = summarise(runs)
        if summary.errors:
            raise SystemExit(f"{name}: {next(iter(summary.errors))}")
        lag = summary.metrics["lag_ms"]
        p50, p95 = (lag.percentiles[percent].value for percent in ("p50", "p95"))
        direct = direct or p95
        table.add_row(name, str(lag.count), f"{p50:.0f}", f"{p95:.0f}", f"{p95 - direct:+.0f}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    typer.run(main)
