"""Makes the table "From the end of speech to the first text": by how a turn's end is found.

    python -m benchmarks.starter.talks --turns 31 --tiny
    python -m benchmarks.starter.talks --turns 31 --tiny --way "semantic_vad, early"

Recordings: the project's, and prompts of a telephone exchange (Allison Smith, CC-BY-SA-3.0; see
`benchmarks.parity.recordings`), with word times by the same aligner (`prompts.json`). A turn is a recording
with a pause after one of its words, filled with the recording's own quietest moment. Ways take turns, each
turn in a session of its own, at the pace of speech. An answer that is shown of a turn which was taken for
over before the last word is premature; after the last word of a sentence it may well be over by ear, so these
are told apart.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from websockets.asyncio.client import connect

from benchmarks.common import SAMPLES, put, put_audio, run_command, running_gateway, serving, spoken
from benchmarks.parity.recordings import telephone
from benchmarks.tables import make_table
from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

CHUNK_S, LIMIT_S = 0.05, 30.0
PAUSES_S = (0.3, 1.2)  # within a turn
SILENCE_S = 9.0  # after it: longer than any turn is waited for
NEAR_S = 0.3  # the end of a word by its alignment, and by a detector of speech
SENTENCE_ENDS = (".", "?", "!")
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
    """Audio, and when each of its words ends."""

    samples: Samples
    ends: tuple[tuple[float, str], ...]

    @property
    def end_s(self) -> float:
        """Of the last word."""
        return self.ends[-1][0]

    def word_before(self, at_s: float) -> str:
        """The last word that had ended when a detector of speech said that it ended."""
        return next((word for end_s, word in reversed(self.ends) if end_s <= at_s + NEAR_S), "")


@dataclass
class Found:
    """Seconds from the end of speech to the first text, and turns that were answered before it."""

    first_s: list[float] = field(default_factory=list)
    within: int = 0  # a sentence
    after: int = 0  # one


def turns(count: int, seed: int) -> list[Turn]:
    """Recordings with a pause each, after a word of their middle half that does not end a sentence."""
    rng = random.Random(seed)
    sources = ((SAMPLES, SAMPLES / "samples.json"), (telephone(), Path(__file__).with_name("prompts.json")))
    entries = [
        (folder / entry["file"], entry)
        for folder, listed in sources
        for entry in json.loads(listed.read_text())
    ]
    rng.shuffle(entries)
    return [with_pause(*entries[number % len(entries)], rng) for number in range(count)]


def with_pause(file: Path, entry: dict[str, Any], rng: random.Random) -> Turn:
    """A recording with a pause, and silence after it."""
    samples = np.concatenate(list(read_blocks(file, 30.0)))
    words = list(zip(entry["text"].replace("-", " ").split(), entry["words"], strict=True))
    middle = words[len(words) // 4 : 3 * len(words) // 4]
    _, (_, _, cut_s) = rng.choice([one for one in middle if not one[0].endswith(SENTENCE_ENDS)])
    pause_s, cut = rng.uniform(*PAUSES_S), round(cut_s * SAMPLE_RATE)
    pause, silence = (quiet(samples, round(s * SAMPLE_RATE)) for s in (pause_s, SILENCE_S))
    ends = tuple((end_s + pause_s * (end_s > cut_s), word) for word, (_, _, end_s) in words)
    return Turn(np.concatenate([samples[:cut], pause, samples[cut:], silence]), ends)


def quiet(samples: Samples, count: int) -> Samples:
    """So many samples of a recording's quietest tenth of a second, forwards and backwards in turns."""
    size, step = SAMPLE_RATE // 10, SAMPLE_RATE // 100
    parts = np.lib.stride_tricks.sliding_window_view(samples, size)[::step]
    quietest = parts[np.square(parts).sum(axis=1).argmin()]
    return np.resize(np.concatenate([quietest, quietest[::-1]]), count)


async def talk(url: str, detection: dict[str, Any], turn: Turn, found: Found) -> None:
    """Says one turn, and waits for its answer. Raises: ServerError."""
    clock = asyncio.get_running_loop().time
    heard = {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}, "turn_detection": detection}
    session = {"type": "realtime", "instructions": "Answer in one sentence.", "max_output_tokens": 24}
    async with connect(f"{url}?model=llm", max_queue=None) as socket:  # else a close waits 10 s
        await put(socket, "session.update", session={**session, "audio": {"input": heard}})
        while (event := json.loads(await socket.recv()))["type"] != "session.updated":
            if event["type"] == "error":
                raise ServerError(f"the gateway refused: {event['error']['message']}")
        if note := event["session"].get("trimodal"):
            raise ServerError(note["turn_detection"])
        began = clock()

        async def send() -> None:
            async for chunk in spoken(turn.samples, CHUNK_S):
                await put_audio(socket, chunk)

        sending, early = asyncio.ensure_future(send()), set[bool]()
        stopped_s, shown = 0.0, dict[str, float]()  # … → when the turn that a response answers ended
        try:
            while True:
                event = json.loads(await asyncio.wait_for(socket.recv(), LIMIT_S))
                if event["type"] == "error":
                    raise ServerError(f"the gateway refused: {event['error']['message']}")
                if event["type"] == "input_audio_buffer.speech_stopped":
                    stopped_s = event["audio_end_ms"] / 1e3
                elif event["type"] == "response.created":
                    shown[event["response"]["id"]] = stopped_s
                elif event["type"] == "response.output_text.delta":
                    answered_s = shown[event["response_id"]]
                    if answered_s >= turn.end_s - NEAR_S:
                        found.first_s.append(clock() - began - turn.end_s)
                        return
                    early.add(turn.word_before(answered_s).endswith(SENTENCE_ENDS))
        finally:
            found.within += False in early
            found.after += early == {True}
            sending.cancel()


async def measure(
    count: int, seed: int, changes: dict[str, dict[str, str]], ways: Sequence[str]
) -> dict[str, Found]:
    """Says every turn in each of the ways. Raises: OperatorError when a server cannot start."""
    found = {name: Found() for name in ways}
    options = ServerOptions.on_free_ports(*MODELS, changes=changes)
    async with (
        serving(options) as (server, _),
        running_gateway(server.grpc_url, 0, "--early-waste", "0") as (late, _),
        running_gateway(server.grpc_url, 0, "--early-waste", "1") as (early, _),
    ):
        ports = {"0": late, "1": early}
        for number, turn in enumerate([*turns(1, seed), *turns(count, seed)]):
            for name in ways:
                detection, waste = WAYS[name]
                url = f"ws://127.0.0.1:{ports[waste]}/v1/realtime"
                await talk(url, detection, turn, found[name] if number else Found())  # the first warms up
    return found


def main(
    turns: Annotated[int, typer.Option(min=1)] = 50,
    seed: Annotated[int, typer.Option(help="of the pauses")] = 1,
    tiny: Annotated[bool, typer.Option("--tiny", help="with whisper-tiny.en")] = False,
    way: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
) -> None:
    """Measures how soon answers to spoken turns begin."""
    columns = "turns end by|answers|p50|p95|premature, within a sentence|after one"
    table = make_table("end of speech to first text (ms)", columns)
    for name, one in asyncio.run(measure(turns, seed, TINY if tiny else {}, way or list(WAYS))).items():
        p50, p95 = 1e3 * np.percentile(one.first_s, (50, 95))
        shares = (f"{count / turns:.0%}" for count in (one.within, one.after))
        table.add_row(name, str(len(one.first_s)), f"{p50:.0f}", f"{p95:.0f}", *shares)
    Console(highlight=False).print(table)


if __name__ == "__main__":
    run_command(main)
