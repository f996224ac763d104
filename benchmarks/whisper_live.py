"""Makes the table "Live speech: beside WhisperLive": the same weights behind its server and behind ours.

    pip install --no-deps --target whisper-live whisper-live==0.10.0
    python -m benchmarks.whisper_live whisper-live --tiny --streams 1 --streams 4 --streams 8

Each stream is of recordings with pauses between them, at the pace of speech in chunks of 100 ms. It ends
with silence, as a microphone's does: WhisperLive drops what it has not heard when it is told of the end. A
word's lag is from its end, by faster-whisper on the whole stream, to the moment from which it is shown for
good, as final or not. It is told of the words that were said and heard.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.common import SAMPLES, Process, free_port, run_command, running, serving, spoken, tree_cpu_s
from benchmarks.parity.contexts import ARTEFACTS
from benchmarks.tables import NARROW, make_table
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.bench.samples import Recording, spoken_streams
from trimodal.build_support import operator_errors
from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.paths import artefact_root
from trimodal.server.options import ServerOptions

CHUNK_S = 0.1
QUIET_S = 4.0
SERVER = """
import sys
from whisper_live.server import TranscriptionServer
TranscriptionServer().run(
    "127.0.0.1", port=int(sys.argv[2]), backend="faster_whisper",
    faster_whisper_custom_model_path=sys.argv[1], single_model=True, max_clients=int(sys.argv[3]),
    batch_enabled=False,
)
"""


@dataclass(frozen=True)
class Spoken:
    """A stream and its words with the second at which each ended."""

    samples: Samples
    text: str
    words: Sequence[tuple[str, float]]


@dataclass
class Shown:
    """The texts that a stream showed, each with its second."""

    texts: list[tuple[float, list[str]]] = field(default_factory=list)

    def see(self, second: float, text: str) -> None:
        self.texts.append((second, normalise(text).split()))

    def lags(self, spoken: Spoken) -> list[float]:
        """Seconds from the end of each word that was said and heard until it was shown for good."""
        if not self.texts:
            return []
        last = self.texts[-1][1]
        stood: dict[int, float] = {}  # word of the last text → since when it is shown
        for second, words in self.texts:
            stood = {at: stood.get(at, second) for _, at in pairs(words, last)}
        said = [word for word, _ in spoken.words]
        return [stood[at] - spoken.words[here][1] for here, at in pairs(said, last)]


def pairs(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Places of the words that both have, in their order."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return [(block.a + at, block.b + at) for block in blocks for at in range(block.size)]


Play = Callable[[Spoken], Awaitable[Shown]]


def read(model: Any, recording: Recording) -> Spoken:
    """A stream with the silence at its end, and its words by faster-whisper."""
    segments, _ = model.transcribe(recording.samples, language="en", beam_size=5, word_timestamps=True)
    found = [(normalise(word.word).split(), word.end) for segment in segments for word in segment.words]
    words = [(part, end) for parts, end in found for part in parts]
    quiet = np.zeros(round(QUIET_S * SAMPLE_RATE), np.float32)
    return Spoken(np.concatenate((recording.samples, quiet)), recording.text, words)


async def ours(client: Client, said: Spoken) -> Shown:
    """Plays a stream to `speech`. Raises: TrimodalError: it is refused or lost."""
    clock = asyncio.get_running_loop().time
    shown, began = Shown(), clock()
    async with client.listen(language="en", timeout=60.0) as stream:
        async for chunk in spoken(said.samples, CHUNK_S):
            update = await stream.send(chunk)
            shown.see(clock() - began, f"{stream.text} {update.tentative}")
        await stream.end()
    shown.see(clock() - began, stream.text)
    return shown


@asynccontextmanager
async def whisper_live(packages: Path, artefact: Path, clients: int) -> AsyncIterator[tuple[int, int]]:
    """WhisperLive on a free port, for so many clients: port and process id. Raises: ServerError."""
    port = free_port()
    command = [sys.executable, "-c", SERVER, str(artefact), str(port), str(clients)]
    environment = {"PYTHONPATH": str(packages.resolve()), "OMP_NUM_THREADS": str(os.cpu_count())}
    more = {"env": os.environ | environment, "stderr": subprocess.DEVNULL}
    # Its threads outlive its streams.
    async with running(command, port, Process.kill, **more) as process:
        yield port, process.pid


async def theirs(port: int, said: Spoken) -> Shown:
    """Plays a stream to WhisperLive. Raises: ServerError: it refuses it."""
    clock = asyncio.get_running_loop().time
    shown = Shown()
    options = {
        "uid": str(id(said)),
        "language": "en",
        "task": "transcribe",
        "model": "",
        "use_vad": True,
        "send_last_n_segments": 1000,
    }
    async with connect(f"ws://127.0.0.1:{port}", proxy=None, max_size=None, ping_interval=None) as socket:
        await socket.send(json.dumps(options))
        first = json.loads(await socket.recv())
        if first.get("message") != "SERVER_READY":
            raise ServerError(f"WhisperLive answers {first}")
        began = clock()
        listener = asyncio.create_task(hear(socket, shown, began))
        async for chunk in spoken(said.samples, CHUNK_S):
            await socket.send(chunk.astype(np.float32).tobytes())
        listener.cancel()
        with suppress(asyncio.CancelledError):
            await listener
        await socket.send(b"END_OF_AUDIO")
    return shown


async def hear(socket: ClientConnection, shown: Shown, began: float) -> None:
    async for message in socket:
        if segments := json.loads(message).get("segments"):
            second = asyncio.get_running_loop().time() - began
            shown.see(second, " ".join(segment["text"] for segment in segments))


async def measured(play: Play, pid: int, streams: Sequence[Spoken]) -> list[str]:
    """Plays all streams at once, each beginning a little after the one before: a row's figures.

    The last is the processor time of process `pid`, and of those below it, for a second of audio.
    """
    before = tree_cpu_s(pid)

    async def one(number: int, spoken: Spoken) -> Shown:
        await asyncio.sleep(number * 0.13)
        return await play(spoken)

    shown = await asyncio.gather(*(one(number, spoken) for number, spoken in enumerate(streams)))
    used = (tree_cpu_s(pid) - before) / sum(len(one.samples) for one in streams) * SAMPLE_RATE
    lags = [lag for each, spoken in zip(shown, streams, strict=True) for lag in each.lags(spoken)]
    texts = [" ".join(each.texts[-1][1]) if each.texts else "" for each in shown]
    wrong = word_error_rate([spoken.text for spoken in streams], texts)
    p50, p95 = np.quantile(lags, (0.5, 0.95)) if lags else (float("nan"), float("nan"))
    return [f"{100 * wrong:.1f} %", f"{p50:.2f} s", f"{p95:.2f} s", f"{used:.2f} s"]


def main(
    packages: Annotated[Path, typer.Argument(help="folder that has whisper_live")],
    tiny: Annotated[bool, typer.Option(help="tiny.en, not base")] = False,
    streams: Annotated[list[int] | None, typer.Option(min=1, help="at once; else 1, 2, 4")] = None,
    seconds: Annotated[float, typer.Option(min=5, help="of each stream")] = 30.0,
) -> None:
    """Play the same streams to both servers in turn."""
    artefact = (artefact_root("speech_recognize") / ARTEFACTS[tiny]).resolve()
    counts = streams or [1, 2, 4]
    table = make_table(
        f"Live speech, {artefact.name}", "streams|side|words wrong|lag p50|p95|CPU of 1 s", **NARROW
    )
    options = ServerOptions.on_free_ports(
        "speech", changes={"speech_recognize": {"artefact": str(artefact)}}, ready_timeout=300.0
    )

    async def run_all() -> None:
        from faster_whisper import WhisperModel

        model = WhisperModel(str(artefact), device="cpu", compute_type="int8", local_files_only=True)
        spoken = [read(model, one) for one in spoken_streams(SAMPLES, seconds)[: max(counts)]]
        del model
        async with AsyncExitStack() as stack:
            server, client = await stack.enter_async_context(serving(options))
            most = max(counts) + 1
            port, peer = await stack.enter_async_context(whisper_live(packages, artefact, most))
            sides: dict[str, tuple[Play, int]] = {
                "ours": (partial(ours, client), server.pid),
                "WhisperLive": (partial(theirs, port), peer),
            }
            brief = Spoken(spoken[0].samples[: 5 * SAMPLE_RATE], "", [])
            for play, _ in sides.values():  # the first client makes WhisperLive load its weights
                await play(brief)
            for count in counts:
                for name, (play, pid) in sides.items():
                    table.add_row(str(count), name, *await measured(play, pid, spoken[:count]))

    try:
        with operator_errors():
            asyncio.run(run_all())
    finally:
        Console(highlight=False, width=100).print(table)


if __name__ == "__main__":
    run_command(main)
