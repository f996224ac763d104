"""Makes the table "Memory": all models in one server, process by process, and servers of one modality each.

    python -m benchmarks.memory
    python -m benchmarks.memory --llama-server build/bin/llama-server --litserve litserve-packages \
        --whisper-live whisper-live

Where these come from: llm/llama_cpp.py, litserve.py and whisper_live.py. Each server is alone, with the same
weights and kind of load: 8 chats, 4 clients of images, 2 of recordings and 2 live streams at once.
WhisperLive takes no recordings: it has 4 live streams.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import soundfile
import typer
from rich.console import Console

from benchmarks.common import SAMPLES, post, run_command, running, until
from benchmarks.litserve import MOST, answering, litserve, over_http
from benchmarks.llm.llama_cpp import CHECKPOINT, FILE, serving_with
from benchmarks.memory.processes import Memory, read
from benchmarks.tables import NARROW, make_table
from benchmarks.whisper_live import Spoken, theirs, whisper_live
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.load.generator import Closed, Send, run
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.records import Record
from trimodal.bench.samples import batch_of, jpegs, spoken_streams
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.llm import follow
from trimodal.bench.targets.media import embedding, speech, vision
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.bench.targets.taking import check, sender
from trimodal.build_support import operator_errors, resolve_checkpoint
from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.paths import artefact_root, default_repository
from trimodal.repository import select_models
from trimodal.server import ports
from trimodal.vision.settings import VisionSettings

CHATS, IMAGES, RECORDINGS, LIVE = 8, 4, 2, 2
LOOK_S, SETTLE_S = 0.5, 2.0
OURS = "gateway"  # the process that starts all others
KV_TOKENS = 16_384  # of ours as shipped, in 8 bits; llama.cpp is given as many
QUESTIONS = Questions(Mix(parse_lengths("uniform:300-700", ""), parse_lengths("uniform:48-96", "")))


@dataclass(frozen=True)
class Side:
    """A server that runs: what sends the load, by how many clients, and what else it is asked once before."""

    pid: int
    load: Sequence[tuple[Send, int]]
    once: Sequence[Send] = ()


Started = AsyncIterator[Side]


async def measure(side: Side, name: str, seconds: float) -> Memory:
    """Asks once for each, then sends the load. Raises: ServerError: a request is not answered."""
    look = partial(asyncio.to_thread, read, side.pid, name)
    memory = Memory(await look())
    for send in [*side.once, *(send for send, _ in side.load)]:
        await check(send)
    await asyncio.sleep(SETTLE_S)
    memory.idle = await look()

    async def watch() -> None:
        while True:
            memory.see(await look())
            await asyncio.sleep(LOOK_S)

    watching = asyncio.create_task(watch())
    runs = await asyncio.gather(*(run(send, Closed(clients), seconds=seconds) for send, clients in side.load))
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    wrong = [record.error for one in runs for record in one.records if record.error]
    if wrong:
        raise ServerError(f"{name}: {wrong[0]}")
    return memory


def transcriptions(client: httpx.AsyncClient, recordings: Sequence[Samples]) -> Send:
    """Recordings to the gateway, as files."""
    files = []
    for samples in recordings:
        file = io.BytesIO()
        soundfile.write(file, samples, SAMPLE_RATE, format="WAV")
        files.append(file.getvalue())

    async def ask(record: Record, number: int) -> None:
        (file,) = batch_of(files, number, 1)
        form = {"model": "speech", "language": "en"}
        await post(client, "/v1/audio/transcriptions", data=form, files={"file": file})
        record.piece()

    return sender(ask)


@asynccontextmanager
async def chatting(url: str) -> AsyncIterator[Send]:
    target = HttpLlm(f"{url}/v1", QUESTIONS, timeout=300.0, keep_alive=False)
    yield target.send
    await target.aclose()


@asynccontextmanager
async def ours(files: Sequence[bytes], recordings: Sequence[Samples]) -> Started:
    """Everything as shipped, chats and recordings through the gateway, the rest over gRPC."""
    flags = [f"--{name}-port" for name in ("http", "grpc", "metrics", "health", "gateway")]
    chosen = ports.choose("127.0.0.1", dict.fromkeys(flags, 0))
    command = [sys.executable, "-m", "trimodal.cli.app", "serve", "--gateway"]
    command += [f"{flag}={port}" for flag, port in chosen.items()]
    url = f"http://127.0.0.1:{chosen['--gateway-port']}"
    async with (
        running(command, chosen["--gateway-port"]) as process,
        Client(f"127.0.0.1:{chosen['--grpc-port']}", connections=4) as client,
        httpx.AsyncClient(base_url=url, timeout=300, trust_env=False) as http,
        chatting(url) as chat,
    ):

        async def ready() -> bool:
            return (await http.get("/ready")).is_success

        await until(ready, "a ready server", 150.0)  # it listens while the models are loaded
        load = [
            (chat, CHATS),
            (vision(client, files), IMAGES),
            (transcriptions(http, recordings), RECORDINGS),
            (speech(client, recordings), LIVE),
        ]

        async def ask(record: Record, number: int) -> None:
            await follow(client.ask("What is this?", image=files[number % len(files)]), record)

        yield Side(process.pid, load, [embedding(client, QUESTIONS), sender(ask)])


@asynccontextmanager
async def llama_cpp(server: Path) -> Started:
    values = {
        "--model": resolve_checkpoint(CHECKPOINT) / FILE,
        "--parallel": CHATS,
        "--ctx-size": KV_TOKENS,
        "--flash-attn": "on",  # which a cache of 8 bits needs
        "--cache-type-k": "q8_0",
        "--cache-type-v": "q8_0",
        "--threads": os.cpu_count(),
    }
    command = [str(server), *(str(word) for pair in values.items() for word in pair)]
    async with serving_with(command) as (port, pid), chatting(f"http://127.0.0.1:{port}") as chat:
        yield Side(pid, [(chat, CHATS)])


@asynccontextmanager
async def images(packages: Path, files: Sequence[bytes]) -> Started:
    model = select_models(default_repository(), ("vision",), "cpu")["vision"]
    settings = model.settings(VisionSettings)
    artefact = (model.version_directory / settings.artefact).resolve()
    async with litserve(packages, artefact, settings.model_dump_json(), MOST, 0.001) as (client, pid):
        send = over_http(client, files)
        await answering(send)
        yield Side(pid, [(send, IMAGES)])


@asynccontextmanager
async def live(packages: Path, artefact: Path, recordings: Sequence[Samples]) -> Started:
    async with whisper_live(packages, artefact, LIVE + RECORDINGS + 1) as (port, pid):

        async def ask(record: Record, number: int) -> None:
            await theirs(port, Spoken(recordings[number % len(recordings)], "", []))
            record.piece()

        yield Side(pid, [(sender(ask), LIVE + RECORDINGS)])


def main(
    llama_server: Annotated[Path | None, typer.Option(help="llama.cpp's server")] = None,
    litserve_packages: Annotated[Path | None, typer.Option("--litserve", help="folder that has it")] = None,
    live_packages: Annotated[Path | None, typer.Option("--whisper-live", help="folder that has it")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="of load")] = 50.0,
    recording_s: Annotated[float, typer.Option(min=5, help="of a recording or live stream")] = 20.0,
) -> None:
    """Measures the whole server, then each peer alone."""
    recordings = [one.samples for one in spoken_streams(SAMPLES, recording_s)]
    files = jpegs(640, 480)
    artefact = (artefact_root("speech_recognize") / "ctranslate2-int8").resolve()
    sides: dict[str, AbstractAsyncContextManager[Side]] = {OURS: ours(files, recordings)}
    if llama_server:
        sides["llama.cpp"] = llama_cpp(llama_server)
    if litserve_packages:
        sides["LitServe"] = images(litserve_packages, files)
    if live_packages:
        sides["WhisperLive"] = live(live_packages, artefact, recordings)
    table = make_table("Memory (MiB)", "side|ready|after one of each|peak", **NARROW)

    def add(name: str, sizes: Sequence[float]) -> None:
        table.add_row(name, *(f"{size:,.0f}" for size in sizes))

    async def run_all() -> None:
        peers = []
        for name, start in sides.items():
            async with start as side:
                memory = await measure(side, name, seconds)
            if name == OURS:
                for process, sizes in memory.rows():
                    add(process, sizes)
                add("all models in one server", memory.whole)
            else:
                add(f"{name} alone", memory.whole)
                peers.append(memory.whole)
        if peers:
            add("the peers' sum", [sum(sizes) for sizes in zip(*peers, strict=True)])

    try:
        with operator_errors():
            asyncio.run(run_all())
    finally:
        Console(highlight=False, width=100).print(table)


if __name__ == "__main__":
    run_command(main)
