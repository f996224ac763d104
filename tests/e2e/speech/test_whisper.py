"""A real Whisper (tiny.en) on the real server: it hears people, and makes up no words where nobody speaks.

`python -m benchmarks.parity.speech` measures how well, beside faster-whisper.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.e2e.conftest import BOUND
from tests.e2e.speech.streams import MODELS, TINY_EN, Stream, cut, over_grpc
from trimodal.audio.files import read_blocks
from trimodal.audio.word_errors import word_error_rate
from trimodal.client import Client, Timeouts
from trimodal.paths import data_directory
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

SAMPLES = data_directory() / "samples" / "speech"
MOST_ERRORS = 0.08  # measured: 3 to 4 %; a word that is cut or made up now and then is one in 167
RNG = np.random.default_rng(5)
TIME = np.arange(8 * 16_000) / 16_000


def chord(*frequencies: float) -> NDArray[np.float32]:
    return np.asarray(0.15 * sum(np.sin(2 * np.pi * f * TIME) for f in frequencies), np.float32)


def music() -> NDArray[np.float32]:
    """Four chords of two seconds, plucked."""
    chords = [(262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294)]
    parts = [chord(*one)[:32_000] * np.exp(-TIME[:32_000] * 1.5) for one in chords]
    return np.concatenate(parts).astype(np.float32)


SOUNDS = {
    "silence": np.zeros(len(TIME), np.float32),
    "faint noise": RNG.normal(0, 0.003, len(TIME)).astype(np.float32),
    "white noise": RNG.normal(0, 0.1, len(TIME)).astype(np.float32),
    "loud noise in bursts": (RNG.normal(0, 0.3, len(TIME)) * (TIME % 2 < 1)).astype(np.float32),
    "a tone": chord(440.0),
    "a chord": chord(262, 330, 392),
    "plucked chords": music(),
    "hum": chord(50, 100, 150),
    "a siren": (0.3 * np.sin(2 * np.pi * (600 * TIME - 40 * np.cos(2 * np.pi * TIME)))).astype(np.float32),
    "a constant": np.full(len(TIME), 0.7, np.float32),
    "a square wave": np.sign(np.sin(2 * np.pi * 220 * TIME)).astype(np.float32),
    "clicks": (np.arange(len(TIME)) % 8000 == 0).astype(np.float32),
}
QUICK = ("silence", "white noise", "plucked chords")


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(MODELS, TINY_EN)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SOUNDS],
)
def test_where_nobody_speaks_no_words_are_made_up(server: TritonServer, name: str) -> None:
    with over_grpc(server) as line:
        updates = Stream(line).say(list(cut(SOUNDS[name], 1, 0.3, 0.7)))
        assert "".join(update.text for update in updates) == ""


@pytest.mark.parametrize("part", [slice(0, None, 4), pytest.param(slice(None), marks=pytest.mark.slow)])
async def test_recordings_of_people_are_heard_whole_and_live(server: TritonServer, part: slice) -> None:
    """Files as `trimodal transcribe` sends them; streams whose words have their times, too."""
    listed = json.loads((SAMPLES / "samples.json").read_text())[part]
    said, whole, live = [one["text"] for one in listed], [], []
    async with Client(server.grpc_url, timeouts=Timeouts(total=BOUND)) as client:
        for one in listed:
            whole.append((await client.transcribe(SAMPLES / one["file"])).text)
            async with client.listen() as stream:
                for chunk in cut(next(read_blocks(SAMPLES / one["file"], 30.0)), 1, 0.3, 0.7):
                    await stream.send(chunk)
                await stream.end()
            live.append(stream.text)
            first, last = one["words"][0], one["words"][-1]
            assert stream.words[0].start == pytest.approx(first[1], abs=0.5)
            assert stream.words[-1].end == pytest.approx(last[2], abs=0.5)
    assert word_error_rate(said, whole) < MOST_ERRORS
    assert word_error_rate(said, live) < MOST_ERRORS


@pytest.mark.slow
async def test_a_person_who_mutes_the_microphone_gets_the_last_words(server: TritonServer) -> None:
    one = json.loads((SAMPLES / "samples.json").read_text())[0]
    samples = next(read_blocks(SAMPLES / one["file"], 30.0))
    samples = samples[: round((one["words"][-1][2] + 0.05) * 16_000)]
    async with Client(server.grpc_url, timeouts=Timeouts(total=BOUND)) as client, client.listen() as stream:
        for chunk in cut(samples, 1, 0.1, 0.3):
            await stream.send(chunk)
        while not stream.words or stream.words[-1].end < one["words"][-1][2] - 0.5:
            await stream.news(asyncio.Event())
    assert word_error_rate([one["text"]], [stream.text]) < 2 * MOST_ERRORS
