"""Live streams and recordings through the client, its command and the copyable program.

The recogniser is the fake one, which reads words out of tones; everything else is real.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from trimodal.client import Client
from trimodal.errors import InvalidArgument
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import WORD_S, speak

pytestmark = pytest.mark.e2e

PROGRAM = Path(__file__).parents[3] / "clients" / "transcribe_live.py"
RATE = 16_000
SENTENCES = ("what is a lambda", "explain the while statement", "how does a for loop return zero")
PAUSE_S = 0.8
SAMPLES, WORDS = speak(part for sentence in SENTENCES for part in (*sentence.split(), PAUSE_S))
TEXT = " ".join(SENTENCES)


@pytest.fixture(scope="module")
def server(fakes: TritonServer) -> TritonServer:
    return fakes


@pytest.fixture
async def client(server):
    async with Client(server.grpc_url) as client:
        yield client


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    path = tmp_path_factory.mktemp("talk") / "talk.wav"
    soundfile.write(path, SAMPLES, RATE, subtype="PCM_16")
    return path


def run(*command, **more):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, timeout=60, **more)


@pytest.mark.parametrize("policy", ["edge", "vad"])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
async def test_a_stream_gives_the_words_with_their_times(client, policy, dtype):
    samples = SAMPLES if dtype is np.float32 else (SAMPLES * 32767).astype(np.int16)
    updates = []
    async with client.listen(policy=policy) as stream:
        for at in range(0, len(samples), 3_210):
            updates.append(await stream.send(samples[at : at + 3_210]))
        updates.append(await stream.end())
    assert stream.text == TEXT
    assert "".join(update.text for update in updates).strip() == TEXT
    assert [update.final for update in updates] == [False] * (len(updates) - 1) + [True]
    assert updates[-1].received_s == pytest.approx(len(samples) / RATE)
    assert updates[-1].tentative == ""
    for heard, said in zip(stream.words, WORDS, strict=True):
        assert heard.text == said.text
        assert heard.start == pytest.approx(said.start, abs=WORD_S / 2)
        assert heard.end == pytest.approx(said.end, abs=WORD_S / 2)


async def test_a_recording_as_samples_and_as_a_file(client, talk, tmp_path):
    soundfile.write(tmp_path / "talk.flac", np.repeat(SAMPLES, 2)[:, None].repeat(2, axis=1), 2 * RATE)
    for audio in (SAMPLES, talk, str(tmp_path / "talk.flac")):
        transcript = await client.transcribe(audio)
        assert transcript.text == TEXT
        assert transcript.seconds == pytest.approx(len(SAMPLES) / RATE)


async def test_a_refused_start_and_a_refused_chunk(client):
    async with client.listen(policy="never") as stream:
        with pytest.raises(InvalidArgument, match="policy"):
            await stream.send(SAMPLES[:RATE])
    bad = SAMPLES[:RATE].copy()
    bad[7] = np.nan
    async with client.listen() as stream:
        await stream.send(SAMPLES[: 2 * RATE])
        with pytest.raises(InvalidArgument, match="audio"):
            await stream.send(bad)
        await stream.end(SAMPLES[2 * RATE :])
    assert stream.text == TEXT


async def test_streams_side_by_side_and_abandoned_ones(client):
    async def talk(number):
        async with client.listen() as stream:
            for at in range(0, len(SAMPLES), RATE // 2):
                await stream.send(SAMPLES[at : at + RATE // 2])
                if number % 2 and at > 2 * RATE:
                    return "left"
            await stream.end()
        return stream.text

    texts = await asyncio.wait_for(asyncio.gather(*(talk(number) for number in range(8))), 60)
    assert texts == [TEXT, "left"] * 4


@pytest.mark.slow
def test_the_command(server, talk, tmp_path):
    done = run("-m", "trimodal.cli.app", "transcribe", talk, "--url", server.grpc_url, "--format", "json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert (value["text"], len(value["words"])) == (TEXT, len(WORDS))
    raw = (SAMPLES * 32767).astype("<i2").tobytes()
    live = run(
        *("-m", "trimodal.cli.app", "transcribe", "-", "--live", "--speed", 8, "--url", server.grpc_url),
        input=raw,
    )
    *lines, last = live.stdout.decode().splitlines()
    assert last == TEXT, live.stderr
    assert " ".join(line.partition("] ")[2] for line in lines) == TEXT
    assert len(lines) > 1
    captions = run("-m", "trimodal.cli.app", "transcribe", talk, "--format", "srt", "--url", server.grpc_url)
    assert captions.stdout.startswith(b"1\n00:00:00,")
    assert b"\nwhat is a lambda\n" in captions.stdout


@pytest.mark.slow
def test_the_copyable_program(server, talk):
    done = run(PROGRAM, talk, "--url", server.grpc_url, "--policy", "vad")
    assert (done.returncode, done.stdout.decode().strip()) == (0, TEXT), done.stderr
    odd = (SAMPLES[: 1_600 * 21 + 100] * 32767).astype("<i2").tobytes()  # ends with less than 20 ms
    piped = run(PROGRAM, "-", "--url", server.grpc_url, input=odd)
    assert (piped.returncode, piped.stdout.decode().split()[:4]) == (0, SENTENCES[0].split()), piped.stderr
    for arguments in (["--url", "127.0.0.1:1"], ["--url", server.grpc_url, "--policy", "never"]):
        refused = run(PROGRAM, talk, *arguments)
        assert refused.returncode == 1
        assert b"Traceback" not in refused.stderr


def test_the_copyable_program_is_short_and_stands_alone():
    text = PROGRAM.read_text()
    assert len(text.splitlines()) < 80
    assert "import trimodal" not in text
    assert "from trimodal" not in text
    assert b"usage: " in run(PROGRAM, "--help").stdout
