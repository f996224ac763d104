"""The programs to copy in clients/: what they take, and what they say of what is refused."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import wave
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.client.transports.grpc_server import refusal, response, serving
from tests.doubles.waiting import until
from trimodal.client.transports.tensors import strings
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


@pytest.mark.parametrize("name", ["ask", "chat_grpc"])
@pytest.mark.parametrize("how", ["answered", "refused", "left"])
async def test_only_what_is_not_over_is_cancelled(name: str, how: str, monkeypatch, capsys) -> None:
    """Triton (2.51) now and then keeps a request for good that is cancelled while it completes."""
    last = {"stage": strings([b"answer"]), "timing": strings([b"{}"])}
    script = {
        "answered": [response("an ", **last), response("answer", "stop", **last)],
        "refused": [refusal("UNAVAILABLE: the queue is full", by_model=True)],
        "left": [response("an ", **last), asyncio.Event()],
    }
    async with serving() as (servicer, _, _):
        servicer.script = script[how]
        timeout = "0.3" if how == "left" else "60"
        monkeypatch.setattr("sys.argv", [name, "hi", "--url", servicer.url, "--timeout", timeout])
        status = await asyncio.to_thread(program(name).main)
        assert status == (how != "answered")
        await until(lambda: servicer.running == 0)
        assert servicer.cancelled == (servicer.begun if how == "left" else 0)
    if how == "answered":
        assert capsys.readouterr().out == "an answer"


async def test_over_http_the_end_of_the_stream_is_read(monkeypatch, capsys) -> None:
    """It closed the connection at the finish_reason, which cancels what is not over."""
    left = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        event = b'data: {"text_output": "an answer", "finish_reason": "stop", "completion_tokens": 2}\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event)
        with contextlib.suppress(asyncio.TimeoutError):
            left.append(await asyncio.wait_for(reader.read(1), 0.3))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.setattr("sys.argv", ["chat_http", "hi", "--url", url])
        assert await asyncio.to_thread(program("chat_http").main) == 0
    assert not left
    assert capsys.readouterr().out == "an answer"
