"""What clients send stands in no log and no trace, and no error repeats it whole."""

from __future__ import annotations

import io
import json
import logging
import wave
from collections.abc import Callable

import httpx
import pytest
from PIL import Image, PngImagePlugin

from tests.e2e import fakes as all_fakes
from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.observability.receiver import Receiver
from trimodal import logs
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

MARK = "Xq7wPrivate"
LONG = MARK * 2_000


def picture() -> bytes:
    """A good PNG with the mark in it."""
    file, texts = io.BytesIO(), PngImagePlugin.PngInfo()
    texts.add_text("Comment", MARK)
    Image.new("RGB", (16, 12), (9, 0, 0)).save(file, "PNG", pnginfo=texts)
    return file.getvalue()


def recording() -> bytes:
    """A second of sound; its bytes are the mark, over and over."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(16_000)
        wav.writeframes((MARK.encode() * 3_000)[:32_000])
    return file.getvalue()


def ask_the_gateway(url: str) -> list[str]:
    """Every kind of request, good and bad; what was answered to the bad ones."""
    chat = {"model": "llm", "messages": [{"role": "user", "content": f"my {MARK} question"}], "max_tokens": 5}
    bad = [
        ("chat/completions", {**chat, "max_tokens": LONG}),
        ("chat/completions", {**chat, "messages": [{"role": LONG, "content": LONG}]}),
        ("chat/completions", {**chat, "response_format": {"type": LONG}}),
        ("chat/completions", {**chat, "tools": [{"type": "function", "function": {"name": LONG}}]}),
        ("chat/completions", {**chat, "model": LONG}),
        ("embeddings", {"model": "embedding", "input": [LONG * 4]}),
        ("images/classifications", {"model": "vision", "input": [f"data:image/png;base64,{LONG}"]}),
        ("images/classifications", {"model": "vision", "input": [LONG]}),
    ]
    told = []
    with httpx.Client(base_url=f"{url}/v1/", timeout=BOUND) as client:
        for stream in (False, True):
            assert client.post("chat/completions", json={**chat, "stream": stream}).is_success
        assert client.post("chat/completions", json={**chat, LONG: 1}).is_success, (
            "an unknown field is ignored"
        )
        assert client.post("embeddings", json={"model": "embedding", "input": MARK}).is_success
        sound = client.post(
            "audio/transcriptions", data={"model": "speech"}, files={"file": (f"{MARK}.wav", recording())}
        )
        assert sound.is_success, sound.text
        for path, body in bad:
            answer = client.post(path, json=body)
            assert answer.status_code == 400 or answer.status_code == 404 or "error" in answer.text, (
                answer.text
            )
            told.append(answer.text)
        broken = client.post(
            "audio/transcriptions", data={"model": "speech"}, files={"file": (f"{LONG}.wav", LONG)}
        )
        assert broken.status_code == 400
        told.append(broken.text)
    return told


def ask_triton(server: TritonServer) -> list[str]:
    url = f"http://{server.http_url}/v2/models"
    told = []
    for model, body in (
        ("llm/generate_stream", {"text_input": MARK, "max_tokens": 3}),
        ("llm/generate_stream", {"text_input": LONG, "max_tokens": -1}),
        ("llm/generate_stream", {"text_input": "a", "tier": LONG}),
        ("llm/generate_stream", {"text_input": "a", "response_format": LONG}),
        ("llm/generate_stream", {"messages": LONG}),
        ("embedding/generate", {"text_input": LONG * 4}),
        ("vision/generate", {"image": LONG}),
    ):
        told.append(httpx.post(f"{url}/{model}", json=body, timeout=BOUND).text)
    return told[1:]


@pytest.mark.slow
def test_no_log_and_no_trace_has_what_clients_send(
    serve: Callable[..., TritonServer],
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the level `debug`, with a span of each request, whether it is served or refused."""
    changes = all_fakes.changes(tmp_path_factory.mktemp("private"))
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "debug")
    with Receiver() as traces, caplog.at_level(logging.DEBUG):
        server = serve(all_fakes.MODELS, changes, otlp=traces.url)
        with gateway(server.grpc_url) as url:
            told = ask_the_gateway(url) + ask_triton(server)
        wait_until(lambda: len(traces.spans) > 20, "spans")
        spans, log = json.dumps(traces.spans), server.log_path.read_text()
    assert MARK not in spans
    assert MARK not in log
    assert MARK not in caplog.text
    for text in told:
        assert "error" in text, text[:300]
        assert len(text) < 2_000, text[:300]
