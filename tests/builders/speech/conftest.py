"""What the tests of speech builds share: a small Whisper of random weights, and audio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from tests.speech.whisper.checkpoints import sound, write_checkpoint
from trimodal.audio.values import SAMPLE_RATE

RECORDINGS = ((2, 1), (5, 2), (4, 3), (12, 4))  # seconds, seed; the last makes two windows of 10 s


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English-only; its words depend on the audio."""
    directory = tmp_path_factory.mktemp("checkpoints") / "english"
    write_checkpoint(directory, end_gain=1)
    return directory


@pytest.fixture(scope="session")
def audio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("audio")
    for seconds, seed in RECORDINGS:
        soundfile.write(directory / f"{seed}.wav", sound(seconds, seed), SAMPLE_RATE)
    (directory / "samples.json").write_text(json.dumps([{"file": "1.wav", "text": "hello world"}]))
    return directory
