"""/v1/realtime in front of a real Triton: on fake engines, and a talk about a picture on real ones."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.sync.client import ClientConnection, connect

from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.metrics import total
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import speak

pytestmark = pytest.mark.e2e

SAID = "one two three four five six seven eight"
SAMPLES = Path(__file__).parents[3] / "samples"
CLIENT = Path(__file__).parents[3] / "clients/realtime_microphone.py"
MANUAL = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}


@pytest.fixture(scope="module")
def url(fakes: TritonServer) -> Iterator[str]:
    with gateway(fakes.grpc_url) as url:
        yield url.replace("http", "ws") + "/v1/realtime"


def pcm() -> bytes:
    said = SAID.split()
    samples, _ = speak([*said[:3], 1.0, *said[3:6], 0.5, *said[6:], 1.5])
    return (samples * 32_767).astype("<i2").tobytes()


def chunks() -> list[dict[str, Any]]:
    """Pieces of 100 ms as events."""
    data = pcm()
    pieces = [data[at : at + 3_200] for at in range(0, len(data), 3_200)]
    return [{"type": "input_audio_buffer.append", "audio": base64.b64encode(one).decode()} for one in pieces]


def receive(connection: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(connection.recv(BOUND))
    assert event["type"] != "error", event
    return event


def open_streams(server: TritonServer) -> float:
    return total(server, "trimodal_speech_active_streams")


def idle(server: TritonServer) -> None:
    wait_until(lambda: open_streams(server) == 0, "no open stream")


def test_words_that_may_still_change(url: str, fakes: TritonServer) -> None:
    events: list[dict[str, Any]] = []
    with connect(url) as connection:
        connection.send(json.dumps({"type": "session.update", "model": "speech", "tentative": True}))
        connection.send(json.dumps({"type": "input_audio_buffer.commit"}))
        for chunk in chunks():
            connection.send(json.dumps(chunk))
            with suppress(TimeoutError):  # nothing is there yet
                events.append(json.loads(connection.recv(0.1)))
        connection.send(json.dumps({"type": "input_audio_buffer.commit", "final": True}))
        while not events or events[-1]["type"] != "transcription.done":
            events.append(receive(connection))
    assert events[-1]["text"] == SAID
    final, guesses = "", []  # guesses: text so far, and what may still change
    for event in events:
        final += event.get("delta", "")
        if event["type"] == "transcription.tentative":
            guesses.append((final, event["text"]))
    assert all(SAID.startswith(final + guess) for final, guess in guesses)
    assert any(guess for _, guess in guesses)
    assert guesses[-1] == (SAID, "")
    idle(fakes)


def test_an_answer_to_what_was_said(url: str) -> None:
    with connect(f"{url}?model=llm") as connection:
        settings = {"type": "realtime", "audio": {"input": MANUAL}, "max_output_tokens": 8}
        connection.send(json.dumps({"type": "session.update", "session": settings}))
        for event in (*chunks(), {"type": "input_audio_buffer.commit"}, {"type": "response.create"}):
            connection.send(json.dumps(event))
        while (event := receive(connection))["type"] != "response.done":
            pass
    assert event["response"]["usage"]["output_tokens"] == 8


def test_the_microphones_program(url: str, fakes: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "said.wav"
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        # Silero hears no speech in the fake engine's tones: only that the program ends well is seen here.
        out.writeframes(np.zeros(16_000, "<i2").tobytes())
    done = subprocess.run(
        [sys.executable, CLIENT, file, "--url", url], capture_output=True, timeout=BOUND,
        check=False, encoding="utf-8",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    done = subprocess.run(
        [sys.executable, CLIENT, tmp_path / "none.wav", "--url", url], capture_output=True, timeout=BOUND,
        check=False, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 1
    assert "none.wav" in done.stderr
    idle(fakes)


def said(recording: str) -> bytes:
    """A recording and a second of silence, as 24 kHz PCM."""
    samples, rate = soundfile.read(SAMPLES / "speech" / recording, dtype="float32")
    assert rate == 16_000
    samples = np.concatenate((samples, np.zeros(rate, np.float32)))
    times = np.arange(len(samples) * 3 // 2) / 1.5
    return (np.interp(times, np.arange(len(samples)), samples) * 32_767).astype("<i2").tobytes()


def picture(name: str) -> str:
    data = (SAMPLES / "photos" / name).read_bytes()
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize("by", ["response.cancel", "speech"])
def test_an_interrupted_answer_frees_assistant_and_llm(serve: Callable[..., TritonServer], by: str) -> None:
    endless = {"engine": "fake", "fake_step_ms": "20", "fake_answer": "word " * 400}
    recogniser = {"artefact": "ctranslate2-tiny.en"}
    server = serve(("assistant",), changes={"llm": endless, "speech_recognize": recogniser})
    content = [
        {"type": "input_image", "image_url": picture("koala.jpg")},
        {"type": "input_text", "text": "Which animal?"},
    ]
    audio_in = {"turn_detection": {"type": "server_vad", "create_response": False}}
    with (
        gateway(server.grpc_url) as url,
        connect(f"{url.replace('http', 'ws')}/v1/realtime?model=assistant") as connection,
    ):
        for event in (
            {"type": "session.update", "session": {"type": "realtime", "audio": {"input": audio_in}}},
            {"type": "conversation.item.create",
             "item": {"type": "message", "role": "user", "content": content}},
            {"type": "response.create", "response": {"max_output_tokens": 900}},
        ):  # fmt: skip
            connection.send(json.dumps(event))
        while receive(connection)["type"] != "response.output_text.delta":
            pass
        wait_until(lambda: total(server, "trimodal_llm_active_requests") == 1, "one active request")
        audio = base64.b64encode(said("austen-5-himself.wav")).decode()
        speech = {"type": "input_audio_buffer.append", "audio": audio}
        connection.send(json.dumps({"type": by} if by == "response.cancel" else speech))
        while (event := receive(connection))["type"] != "response.done":
            pass
        reason = {"response.cancel": "client_cancelled", "speech": "turn_detected"}[by]
        assert event["response"]["status_details"] == {"type": "cancelled", "reason": reason}
        wait_until(lambda: total(server, "trimodal_llm_active_requests") == 0, "no active request", 5.0)
        wait_until(lambda: total(server, "trimodal_assistant_active_requests") == 0, "an idle assistant", 5.0)
