"""Makes the table "From the end of speech to the first text": by how a turn's end is found.

    python -m benchmarks.starter.talks --turns 50
    python -m benchmarks.starter.talks --turns 10 --tiny

A turn is one of the project's recordings with a pause between two of its words. Ways take turns, each turn
in a session of its own, at the pace of speech. An answer that begins before the speaker has finished is
premature.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import soundfile
import typer
from rich.console import Console
from websockets.asyncio.client import connect

from benchmarks.common import SAMPLES, put, running_gateway, serving
from benchmarks.tables import make_table
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

CHUNK_S, LIMIT_S = 0.05, 30.0
PAUSES_S = (0.3, 1.2)  # within a turn
SILENCE_S = 9.0  # after it: longer than any turn is waited for
MODELS = ("llm", "speech", "speech_recognize", "turn")
TINY = {"speech_recognize": {"artefact": "ctranslate2-tiny.en"}}
# Name → the session's detection, and the gateway's --early-waste.
WAYS = {
    "server_vad": ({"type": "server_vad"}, "0"),
    "server_vad, early": ({"type": "server_vad"}, "1"),
    "semantic_vad": ({"type": "semantic_vad"}, "0"),
    "semantic_vad, early": ({"type": "semantic_vad"}, "1"),
}


@dataclass(frozen=True)
class Turn:
    samples: Samples
    end_s: float  # of the last word


@dataclass
class Found:
    """Seconds from the end of speech to the first text, and turns that were answered before it."""

    first_s: list[float] = field(default_factory=list)
    premature: int = 0


def turns(count: int, seed: int) -> list[Turn]:
    """Recordings with a pause each, between two words of their middle half."""
    rng = random.Random(seed)
    entries = json.loads((SAMPLES / "samples.json").read_text())
    made = []
    for number in range(count):
        entry = entries[number % len(entries)]
        samples = soundfile.read(SAMPLES / entry["file"], dtype="float32")[0]
        words = entry["words"]
        _, _, cut_s = rng.choice(words[len(words) // 4 : 3 * len(words) // 4])
        pause_s, cut = rng.uniform(*PAUSES_S), round(cut_s * SAMPLE_RATE)
        pause, silence = (np.zeros(round(s * SAMPLE_RATE), np.float32) for s in (pause_s, SILENCE_S))
        made.append(
            Turn(np.concatenate([samples[:cut], pause, samples[cut:], silence]), words[-1][2] + pause_s)
        )
    return made


async def talk(url: str, detection: dict[str, Any], turn: Turn, found: Found) -> None:
    """Says one turn, and waits for its answer. Raises: ServerError."""
    clock = asyncio.get_running_loop().time
    heard = {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}, "turn_detection": detection}
    session = {"type": "realtime", "instructions": "Answer in one sentence.", "max_output_tokens": 24}
    async with connect(f"{url}?model=llm") as socket:
        await put(socket, "session.update", session={**session, "audio": {"input": heard}})
        while (event := json.loads(await socket.recv()))["type"] != "session.updated":
            if event["type"] == "error":
                raise ServerError(f"the gateway refused: {event['error']['message']}")
        if note := event["session"].get("trimodal"):
            raise ServerError(note["turn_detection"])
        began, size = clock(), round(CHUNK_S * SAMPLE_RATE)

        async def send() -> None:
            for at in range(0, len(turn.samples), size):
                chunk = turn.samples[at : at + size]
                await asyncio.sleep(max(0.0, began + (at + len(chunk)) / SAMPLE_RATE - clock()))
                pcm = (chunk * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes()
                await put(socket, "input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

        sending, early = asyncio.ensure_future(send()), False
        try:
            while True:
                event = json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S))
                since_s = clock() - began - turn.end_s
                if event["type"] == "error":
                    raise ServerError(f"the gateway refused: {event['error']['message']}")
                if event["type"] == "response.output_text.delta":
                    if since_s >= 0:
                        found.first_s.append(since_s)
                        return
                    early = True
        finally:
            found.premature += early
            sending.cancel()


async def measure(count: int, seed: int, changes: dict[str, dict[str, str]]) -> dict[str, Found]:
    """Says every turn in every way. Raises: OperatorError when a server cannot start."""
    found = {name: Found() for name in WAYS}
    options = ServerOptions.on_free_ports(*MODELS, changes=changes)
    async with (
        serving(options) as (server, _),
        running_gateway(server.grpc_url, 0, "--early-waste", "0") as (late, _),
        running_gateway(server.grpc_url, 0, "--early-waste", "1") as (early, _),
    ):
        ports = {"0": late, "1": early}
        for number, turn in enumerate([*turns(1, seed), *turns(count, seed)]):
            for name, (detection, waste) in WAYS.items():
                url = f"ws://127.0.0.1:{ports[waste]}/v1/realtime"
                await talk(url, detection, turn, found[name] if number else Found())  # the first warms up
    return found


def main(
    turns: Annotated[int, typer.Option(min=1)] = 50,
    seed: Annotated[int, typer.Option(help="of the pauses")] = 1,
    tiny: Annotated[bool, typer.Option("--tiny", help="with whisper-tiny.en")] = False,
) -> None:
    """Measures how soon answers to spoken turns begin."""
    table = make_table("end of speech to first text (ms)", "turns end by|answers|p50|p95|premature")
    for name, one in asyncio.run(measure(turns, seed, TINY if tiny else {})).items():
        p50, p95 = 1e3 * np.percentile(one.first_s, (50, 95))
        table.add_row(name, str(len(one.first_s)), f"{p50:.0f}", f"{p95:.0f}", f"{one.premature / turns:.0%}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    typer.run(main)
