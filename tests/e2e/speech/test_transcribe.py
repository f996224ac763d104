"""Live streams and recordings through the client, its command and the copyable program.

The recogniser is the fake one, which reads words out of tones; everything else is real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from trimodal.client import Client
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import speak

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


async def test_a_recording_as_samples_and_as_a_file(client, talk, tmp_path):
    soundfile.write(tmp_path / "talk.flac", np.repeat(SAMPLES, 2)[:, None].repeat(2, axis=1), 2 * RATE)
    for audio in (SAMPLES, talk, str(tmp_path / "talk.flac")):
        transcript = await client.transcribe(audio)
        assert transcript.text == TEXT
        assert transcript.seconds == pytest.approx(len(SAMPLES) / RATE)


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
