"""Measures when the last words come of a microphone that is muted at their end, which sends nothing any more.

    python -m benchmarks.muted --ends 100

One end after another, on Triton's stream and in both dialects of the gateway's socket, with recordings of
people at their own pace. *After the end*: from the last word's end to its commitment, with the pause that
makes it final and the recogniser's time. *After the result*: from the recogniser's last result, as its
metrics tell it (some 70 ms late), or from when silence is taken for the end, if that is later.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Annotated, Any

import httpx
import numpy as np
import soxr
import typer
from rich.console import Console
from websockets.asyncio.client import connect

from benchmarks.common import put, put_audio, run_command, running_gateway, serving, spoken
from benchmarks.parity.contexts import SAMPLES, Recording, read
from benchmarks.tables import make_table
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.client import Client
from trimodal.server.options import ServerOptions

RUNS = "trimodal_speech_recognize_seconds_count"
LIMIT_S, NEAR_S, TAIL_S, CHUNK_S = 30.0, 0.6, 0.1, 0.1
OPENAI_RATE = 24_000
OPENAI_INPUT = {"format": {"type": "audio/pcm", "rate": OPENAI_RATE}, "turn_detection": None}
OPENAI_SESSION = {"type": "transcription", "audio": {"input": OPENAI_INPUT}}
QUIET_S = 1.0  # twice min_silence_duration_ms: a chunk that is so late is silence

Send = Callable[[Samples], Awaitable[None]]
Words = AsyncIterator[list[float]]  # ends of new words, as they come


def cut(one: Recording) -> Samples:
    """The recording up to its last word: muted there."""
    return one.samples[: round((one.words[-1][2] + TAIL_S) * SAMPLE_RATE)]


@asynccontextmanager
async def triton(client: Client) -> AsyncIterator[tuple[Send, Words]]:
    """A stream of Triton's, asked for news while nothing is sent."""
    fresh: asyncio.Queue[list[float]] = asyncio.Queue()
    async with client.listen() as stream:
        sent = asyncio.Event()

        async def send(samples: Samples) -> None:
            sent.set()
            fresh.put_nowait([word.end for word in (await stream.send(samples)).committed])
            sent.clear()

        async def words() -> Words:
            while True:
                while not fresh.empty():
                    yield fresh.get_nowait()
                update = await stream.news(sent)
                yield [word.end for word in update.committed] if update else []
                await asyncio.sleep(0.01)

        yield send, words()


@asynccontextmanager
async def socket(url: str, dialect: str) -> AsyncIterator[tuple[Send, Words]]:
    """A session of the gateway's; no turn is committed but the one that vLLM's dialect begins with."""
    openai = dialect == "openai"
    async with connect(f"{url}?intent=transcription" if openai else url) as opened:
        await put(
            opened, "session.update", **({"session": OPENAI_SESSION} if openai else {"model": "speech"})
        )
        if not openai:
            await put(opened, "input_audio_buffer.commit")

        async def send(samples: Samples) -> None:
            await put_audio(opened, soxr.resample(samples, SAMPLE_RATE, OPENAI_RATE) if openai else samples)

        async def words() -> Words:
            async for event in opened:
                yield [word["end"] for word in json.loads(event).get("words", ())]

        yield send, words()


async def mute(way: Any, samples: Samples, results: list[float]) -> tuple[float, float] | None:
    """Seconds from the last word's end, and from the recogniser's last result; None: it did not come."""
    clock = asyncio.get_running_loop().time
    last = len(samples) / SAMPLE_RATE - TAIL_S
    async with way as (send, words):
        began = clock()

        async def speak() -> None:
            async for chunk in spoken(samples, CHUNK_S):
                await send(chunk)

        async def heard() -> float | None:
            async for ends in words:
                if ends and ends[-1] > last - NEAR_S:
                    return clock()
            return None  # the session was closed

        speaking = asyncio.ensure_future(speak())
        try:
            came = await asyncio.wait_for(heard(), LIMIT_S + last)
        except asyncio.TimeoutError:
            return None
        finally:
            speaking.cancel()
        if came is None:
            return None
        settled = began + len(samples) / SAMPLE_RATE + QUIET_S
        due = max(at for at in (began, settled, *results) if at <= came)
        return came - began - last, came - due


async def watch(url: str, results: list[float]) -> None:
    """Notes when the recogniser's count of runs grows."""
    known = ""
    async with httpx.AsyncClient() as client:
        while True:
            text = (await client.get(url)).text
            count = next((line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(RUNS)), "")
            if count != known:
                known = count
                results.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.02)


async def measure(ends: int, options: ServerOptions) -> dict[str, list[tuple[float, float] | None]]:
    """The ends of each way, which take turns. Raises: OperatorError when a server cannot start."""
    recordings = [cut(one) for one in read(SAMPLES) if len(one.samples) < 6 * SAMPLE_RATE]
    results: list[float] = []
    async with serving(options) as (server, client), running_gateway(server.grpc_url) as (port, _):
        watching = asyncio.ensure_future(watch(f"http://{server.metrics_url}/metrics", results))
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        ways: dict[str, Callable[[], Any]] = {
            "Triton's stream": lambda: triton(client),
            "OpenAI's dialect": lambda: socket(url, "openai"),
            "vLLM's dialect": lambda: socket(url, "vllm"),
        }
        found: dict[str, list[tuple[float, float] | None]] = {name: [] for name in ways}
        for samples in itertools.islice(itertools.cycle(recordings), ends):
            for name, way in ways.items():
                found[name].append(await mute(way(), samples, results))
        if watching.done():
            watching.result()  # its error
        watching.cancel()
    return found


def main(
    ends: Annotated[int, typer.Option(min=1, help="of speech, in each way")] = 100,
    artefact: Annotated[str, typer.Option(help="of speech_recognize")] = "ctranslate2-tiny.en",
) -> None:
    """Measure how long after its end, and after the recogniser's result, the last word is known."""
    changes = {"speech_recognize": {"artefact": artefact}}
    options = ServerOptions.on_free_ports("speech", "speech_recognize", changes=changes)
    table = make_table(f"{ends} ends of speech, {artefact}", "way|heard|end p50|p95|result p50|p95")
    missing = 0
    for name, all_ends in asyncio.run(measure(ends, options)).items():
        heard = [one for one in all_ends if one is not None]
        missing += ends - len(heard)
        cells = []
        for times in zip(*heard, strict=True):
            cells += [f"{1000 * median(times):.0f} ms", f"{1000 * float(np.percentile(times, 95)):.0f} ms"]
        table.add_row(name, str(len(heard)), *cells)
    Console().print(table)
    raise typer.Exit(1 if missing else 0)


if __name__ == "__main__":
    run_command(main)
