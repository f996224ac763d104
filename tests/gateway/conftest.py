"""A gateway on a free port in front of a fake Triton, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import httpx
import numpy as np
import openai
import pytest

from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import (
    FakeSpeech,
    FakeTransport,
    Streaming,
    labelled,
    llm_outputs,
    scripted,
)
from trimodal.client.transports.tensors import strings
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings

ANSWER = "An answer with naïve café, 日本語 and 😀 in it."
LIMIT_S = 20.0
CHAT = [{"role": "user", "content": "hi"}]
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def connect(url: str) -> socket.socket:
    """A connection on which nothing is sent yet."""
    parts = httpx.URL(url)
    return socket.create_connection((parts.host, parts.port or 0), timeout=LIMIT_S)


def raw_chat(**fields: object) -> bytes:
    """A request for a chat as it goes over the wire."""
    body = json.dumps({"model": "llm", "messages": CHAT, **fields}).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


@dataclass(frozen=True)
class Running:
    """`url` is without /v1; `triton` records what was sent; OpenAI's clients end with the test."""

    url: str
    triton: FakeTransport
    clients: ExitStack

    @property
    def asked(self) -> list[Request]:
        """What was sent but for probes, by which the list of models is made."""
        return [request for request in self.triton.requests if "probe" not in request.parameters]

    def openai(self, key: str = "none", **options: object) -> openai.OpenAI:
        values = {"max_retries": 0, "timeout": LIMIT_S, **options}
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, **values)  # type: ignore[arg-type]
        return self.clients.enter_context(client)

    def chat(self, key: str = "none", **fields: object) -> Any:
        """What the model llm answers to "hi"."""
        return self.openai(key).chat.completions.create(model="llm", messages=CHAT, **fields)  # type: ignore[call-overload]

    def openai_async(self, key: str = "none") -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=LIMIT_S)


Serve = Callable[..., Running]


def fake_triton(**models: object) -> FakeTransport:
    """Every model, with scripted answers."""
    usual = {
        "llm": scripted(ANSWER, step=0.002),
        "vision": labelled(("seven", 0.9), ("one", 0.1)),
        "speech": FakeSpeech(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9), ("Well.", 2.4, 2.9)),
        "embedding": vectors,
        "assistant": assistant,
    }
    return FakeTransport(**{**usual, **models})  # type: ignore[arg-type]


def continuing(token: str, talk: Streaming | None = None) -> Streaming:
    """A language model that goes on with this token where words are to be continued, and answers talks."""
    answers, goes_on = talk or scripted(ANSWER, step=0.002), scripted(token)

    async def model(request: Request) -> AsyncIterator[Tensors]:
        async for outputs in (goes_on if "continue_final_message" in request.inputs else answers)(request):
            yield outputs

    return model


def fails(error: Exception, *words: str) -> Streaming:
    """A model that says the words, then fails."""

    async def model(request: Request) -> AsyncIterator[Tensors]:
        for count, word in enumerate(words, 1):
            yield llm_outputs(word, completion_tokens=count)
        raise error

    return model


def held(until: threading.Event, *words: str) -> Streaming:
    """A model that says the words, and its last one, "end", when it may."""

    async def model(request: Request) -> AsyncIterator[Tensors]:
        for word in words:
            yield llm_outputs(word)
        while not until.is_set():
            await asyncio.sleep(0.005)
        yield llm_outputs("end", "stop")

    return model


def with_note(text: str, trimmed: bytes = b"", cache: bytes = b"") -> Streaming:
    """A model that says all at once, and with it how its answer came about."""

    async def model(request: Request) -> AsyncIterator[Tensors]:
        note = {"cache": strings([cache]), "trimmed": strings([trimmed])}
        figures = {"similarity": 0.97, "queue_ms": 0.0, "predicted_ttft_ms": float("nan")}
        note |= {name: np.array([value], np.float32) for name, value in figures.items()}
        yield {**llm_outputs(text, "stop"), **note}

    return model


async def assistant(request):  # type: ignore[no-untyped-def]
    """Hears "what is this" in any audio, sees a seven in any picture, and answers."""
    inputs = request.inputs
    if "audio" in inputs:
        yield {"stage": strings([b"heard"]), "text_output": strings([b"what is this"])}
    if "image" in inputs:
        scores = np.array([0.9, 0.1], np.float32)
        labels = {"labels": strings([b"seven", b"one"]), "scores": scores}
        yield {"stage": strings([b"saw"]), "text_output": strings([b""]), **labels}
    for count, (word, reason) in enumerate((("A", ""), (" seven", ""), (".", "stop")), 1):
        timing = {"timing": strings([b'{"total": 5.0}'])} if reason else {}
        yield {"stage": strings([b"answer"]), **llm_outputs(word, reason, completion_tokens=count), **timing}


def vectors(request):  # type: ignore[no-untyped-def]
    """Unit vectors [N, 4] that depend on the text's length."""
    lengths = [len(text) for (text,) in request.inputs["text_input"]]
    rows = np.array([[length, 1, 2, 3] for length in lengths], np.float32)
    return {"embedding": rows / np.linalg.norm(rows, axis=1, keepdims=True)}


@pytest.fixture(scope="module", autouse=True)
def _prompt_ends() -> Iterator[None]:
    """Has uvicorn look ten times as often whether it is to stop, which took a test 0.2 s."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spares each client of httpx the reading of 140 certificates, 0.1 s: nothing here speaks TLS."""
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----")
    file = tmp_path_factory.mktemp("authority") / "one.pem"
    file.write_text(f"{first}{end}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


def start_gateway(running: ExitStack, triton: FakeTransport, **settings: object) -> str:
    """Starts one that ends with `running`, and returns its URL."""
    values = {"port": 0, "drain_timeout_s": 1.0, "silence_s": 10.0, **settings}
    server = GatewayServer(GatewaySettings.model_validate(values), lambda address: triton)
    url = server.listen()
    running.enter_context(server.serving())
    return url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of API keys; it is not there yet."""
    return tmp_path / "keys.toml"


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as running, ExitStack() as clients:

        def start(triton: FakeTransport | None = None, silence: float = 10.0, **settings: object) -> Running:
            triton = triton or fake_triton()
            return Running(start_gateway(running, triton, silence_s=silence, **settings), triton, clients)

        yield start
