"""What the tests of speech builds share: a small Whisper of random weights, and audio."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import soundfile

from tests.builders.scripts import importable
from tests.speech.whisper.checkpoints import sound, write_checkpoint
from trimodal.audio.values import SAMPLE_RATE

RECORDINGS = ((2, 1), (5, 2), (4, 3), (12, 4))  # seconds, seed; the last makes two windows of 10 s


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # Such small models are the slower the more threads wait for each other.
    with mock.patch.dict(os.environ), importable():
        yield
    torch.set_num_threads(threads)


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
