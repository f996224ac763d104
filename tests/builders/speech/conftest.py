"""What the tests of speech builds share: a small Whisper of random weights, audio, its graphs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import soundfile

from tests.builders.engine_builds import command
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


@pytest.fixture(scope="session")
def torch_fp16(checkpoint: Path, audio: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What build/speech_torch.py makes in fp16. Tests that change it copy it."""
    directory = tmp_path_factory.mktemp("weights") / "torch-fp16"
    with importable():
        result = command("speech_torch")(
            *(checkpoint, "--out", directory, "--audio", audio, "--contexts", "5,10"),
            *("--min-agreement", 0.1),
        )
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture(scope="session")
def onnx_artefacts(checkpoint: Path, audio: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What build/speech_onnx.py makes: int8, fp32 and fp16. Tests that change one copy it."""
    directory = tmp_path_factory.mktemp("artefacts")
    with importable():
        result = command("speech_onnx")(
            *(checkpoint, "--precision", "int8", "--precision", "fp32", "--precision", "fp16"),
            *("--out", directory / "{precision}"),
            *("--audio", audio, "--contexts", "5,10", "--min-agreement", 0.1),
        )
    assert result.exit_code == 0, result.output
    return directory
