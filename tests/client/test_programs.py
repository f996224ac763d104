"""The programs to copy in clients/: what they take, and what they say of what is refused."""

from __future__ import annotations

import base64
import importlib.util
import wave
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from trimodal.vision.settings import Limits

PROGRAMS = Path(__file__).parents[2] / "clients"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path: Path, rate: int, *, channels: int = 1) -> str:
    """A second of 440 Hz, and of a tone that 16 kHz cannot hold where the rate can."""
    at = np.arange(rate) / rate
    tone = np.sin(2 * np.pi * 440 * at) + (np.sin(2 * np.pi * 9_000 * at) if rate > 18_000 else 0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((tone * 12_000).round().astype("<i2").repeat(channels).tobytes())
    return str(path)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("name", ["ask", "transcribe_live"])
def test_a_recording_may_have_any_rate(name: str, rate: int, tmp_path: Path, monkeypatch) -> None:
    module, path = program(name), write(tmp_path / "tone.wav", rate)
    if name == "ask":
        samples = module.samples(path)
    else:
        monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
        chunks = list(module.chunks(path))
        assert {len(chunk) for chunk in chunks} == {module.CHUNK}
        samples = np.concatenate(chunks)
    assert (samples.dtype, len(samples)) == (np.int16, 16_000)
    at = np.arange(16_000) / 16_000
    assert np.abs(samples - 12_000 * np.sin(2 * np.pi * 440 * at)).max() < 120  # a hundredth


@pytest.mark.parametrize(("name", "error"), [("ask", ValueError), ("transcribe_live", wave.Error)])
def test_two_channels_are_refused_in_a_sentence(name: str, error: type, tmp_path: Path) -> None:
    module, path = program(name), write(tmp_path / "stereo.wav", 16_000, channels=2)
    with pytest.raises(error, match="stereo.wav: "):
        list(module.chunks(path) if name == "transcribe_live" else module.samples(path))


def test_of_a_picture_without_end_only_so_much_is_read_that_the_server_refuses_it() -> None:
    read = [program("ask").picture(Path("/dev/zero"))]
    read.append(base64.b64decode(program("openai_picture_and_voice").encoded(Path("/dev/zero"))))
    assert {len(one) for one in read} == {32 << 20}
    assert Limits().max_bytes < 32 << 20
