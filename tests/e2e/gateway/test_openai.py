"""The gateway in front of a real Triton on fake engines, called with OpenAI's own package."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from PIL import Image

from tests.e2e import fakes as all_fakes
from tests.e2e.conftest import BOUND, run_python, wait_until
from tests.e2e.metrics import total
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings
from trimodal.server.process import TritonServer
from trimodal.speech.engines.fake import speak

pytestmark = pytest.mark.e2e

CLIENTS = Path(__file__).parents[3] / "clients"
CHAT = [{"role": "user", "content": "hi"}]


@contextlib.contextmanager
def gateway(*upstream: str, **settings: Any) -> Iterator[str]:
    """Its URL, without /v1; the servers stand in a file where `settings` name one."""
    if upstream:
        settings["upstream"] = upstream
    server = GatewayServer(GatewaySettings(port=0, drain_timeout_s=1.0, **settings))
    url = server.listen()
    with server.serving():
        yield url


def opened(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=BOUND)


def streamed_logprobs(client: openai.OpenAI, **asked: object) -> list[object]:
    """Those of all chunks of an answer."""
    parts = [chunk.choices[0].logprobs for chunk in client.chat.completions.create(**asked, stream=True)]
    return [one for part in parts if part for one in part.content]


@pytest.fixture(scope="module")
def url(fakes: TritonServer) -> Iterator[str]:
    with gateway(fakes.grpc_url) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with opened(url) as client:
        yield client


def idle(server: TritonServer) -> None:
    wait_until(lambda: total(server, "trimodal_llm_active_requests") == 0, "no active request")


def test_text_whole_and_streamed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="llm", messages=CHAT, max_tokens=40)
    # Where in its script the fake engine begins depends on the prompt.
    assert answer.choices[0].message.content in all_fakes.SCRIPT * 3
    assert answer.usage.completion_tokens == 40
    chunks = client.chat.completions.create(model="llm", messages=CHAT, max_tokens=40, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == answer.choices[0].message.content


def test_an_engine_that_cannot_hold_answers_to_a_form_says_so(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    for more in ({"response_format": {"type": "json_object"}}, {"tools": [tool]}):
        with pytest.raises(openai.BadRequestError, match="engine 'fake' .* does not support"):
            client.chat.completions.create(model="llm", messages=CHAT, **more)
    free = client.chat.completions.create(
        model="llm", messages=CHAT, tools=[tool], tool_choice="none", max_tokens=9
    )
    assert free.usage.completion_tokens == 9


def test_a_talk_longer_than_the_models_room(client: openai.OpenAI) -> None:
    """It has 2,048 tokens, bytes. A chat is refused unless it may be trimmed; what is kept here may."""
    turns = [pair for n in range(6) for pair in (("user", f"{n}" * 300), ("assistant", "a" * 300))]
    talk = [*({"role": role, "content": text} for role, text in turns), *CHAT]
    asked = {"model": "llm", "messages": talk, "max_tokens": 9}
    with pytest.raises(openai.BadRequestError, match="the prompt has 3[0-9]{3} tokens") as caught:
        client.chat.completions.create(**asked)
    assert caught.value.code == "context_length_exceeded"
    answer = client.chat.completions.create(**asked, extra_body={"truncation": "auto"})
    assert answer.trimodal["trimmed"]["messages"] % 2 == 0
    assert answer.usage.prompt_tokens <= 2048
    previous, trimmed, found = None, [], []
    for n in range(12):
        last = client.responses.create(
            model="llm", input=f"{n:x}" * 300, previous_response_id=previous, max_output_tokens=9
        )
        previous = last.id
        trimmed.append(last.trimodal.get("trimmed", {}).get("messages", 0))
        found.append(last.usage.input_tokens_details.cached_tokens)
    assert trimmed == sorted(trimmed)
    assert trimmed[0] == 0 < trimmed[-1]
    steps = sum(one != other for one, other in zip(trimmed, trimmed[1:], strict=False))
    assert steps <= 4, "in steps: between them the prompt begins as it did"
    assert sum(tokens > 1_000 for tokens in found) >= 12 - 5 - steps, "and is found in the prefix cache"


def test_vectors_labels_and_words(client: openai.OpenAI, url: str) -> None:
    found = client.embeddings.create(model="embedding", input=["a", "b"])
    assert np.linalg.norm(found.data[1].embedding) == pytest.approx(1, rel=1e-5)
    png = io.BytesIO()
    Image.new("RGB", (8, 8), (1, 0, 0)).save(png, "PNG")
    picture = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    seen = httpx.post(
        f"{url}/v1/images/classifications", json={"input": [picture, "data:;base64,AAAA"]}
    ).json()
    assert len(seen["data"][0]["labels"]) > 0
    assert seen["data"][1]["error"]["type"] == "invalid_request_error"
    recording = io.BytesIO()
    samples, _ = speak(["one", "two", 1.0, "three"])
    soundfile.write(recording, samples, 16_000, format="WAV", subtype="FLOAT")
    heard = client.audio.transcriptions.create(model="speech", file=("a.wav", recording.getvalue()))
    assert heard.text == "one two three"
    listed = {model.id for model in client.models.list()}
    assert listed >= set(all_fakes.MODELS) - {"speech_recognize"}, "whom no endpoint asks"
    assert httpx.get(f"{url}/ready").status_code == 200


async def test_clients_that_vanish_at_random_moments_leave_nothing(url: str, fakes: TritonServer) -> None:
    generator = random.Random(4)

    async def vanish(client: httpx.AsyncClient, number: int) -> None:
        body = {
            "model": "llm",
            "messages": CHAT,
            "max_tokens": 64,
            "stream": bool(number % 3),
            "n": 1 + number % 2,
        }
        limit = generator.choice([0.001, 0.02, 0.1, 0.3])
        with contextlib.suppress(asyncio.TimeoutError, httpx.HTTPError):
            await asyncio.wait_for(client.post(f"{url}/v1/chat/completions", json=body), limit)

    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(limits=limits, timeout=BOUND) as client:
        for first in range(0, 300, 60):
            await asyncio.gather(*(vanish(client, first + number) for number in range(60)))
        await asyncio.to_thread(idle, fakes)
        body = {"model": "llm", "messages": CHAT, "max_tokens": 8}
        good = await client.post(f"{url}/v1/chat/completions", json=body)
    assert good.status_code == 200


def test_a_server_that_dies_is_told_and_found_again(
    own_server: Callable[..., TritonServer], tmp_path: Path
) -> None:
    settings = {**all_fakes.LLM, "fake_answer": "word " * 400, "fake_step_ms": "20"}
    server = own_server(("llm",), changes={"llm": settings})
    with gateway(server.grpc_url) as url, opened(url) as client:
        stream = client.chat.completions.create(model="llm", messages=CHAT, max_tokens=400, stream=True)
        next(stream)
        server.kill()
        with pytest.raises(openai.APIError, match="did not answer|went away"):
            list(stream)
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model="llm", messages=CHAT)
        assert caught.value.status_code == 503
        assert httpx.get(f"{url}/ready").status_code == 503
        assert httpx.get(f"{url}/health").status_code == 200


def test_a_program_to_copy(url: str) -> None:
    api = f"{url}/v1"
    chat = run_python(CLIENTS / "openai_chat.py", "hi", "--url", api, "--max-tokens", 12)
    assert chat.returncode == 0, chat.stderr
    assert chat.stdout.strip() in all_fakes.SCRIPT * 3
    assert re.fullmatch(r"first text after \d+ ms, 12 tokens\n", chat.stderr)
    refused = run_python(CLIENTS / "openai_chat.py", "hi", "--url", api, "--max-tokens", 1_000_000)
    assert refused.returncode == 1
    assert "max_tokens is 1000000" in refused.stderr
