"""The assistant on the starter set: what the demo shows, and that it names what a photo shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from trimodal.client import Client, Turn
from trimodal.demo.assistant import QUESTIONS, Question, texts
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(("assistant",))


@pytest.fixture
async def client(server: TritonServer) -> AsyncIterator[Client]:
    async with Client(server.grpc_url) as client:
        yield client


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda one: one.text or one.audio)
async def test_what_the_demo_shows_is_answered_right(client: Client, asked: Question) -> None:
    image, audio = (SAMPLES / file if file else None for file in (asked.image, asked.audio))
    stream = client.ask(asked.text, image=image, audio=audio, max_tokens=60)
    answer = await stream.answer()
    said = texts(SAMPLES).get(asked.audio or "", "")
    assert asked.is_right(answer.text, stream.heard, said), (answer.text, stream.heard)


@pytest.mark.parametrize("name", ["bison", "koala", "macaw", "panda"])
async def test_a_photo_is_named_by_its_label_and_a_second_question_still_knows_it(
    client: Client, name: str
) -> None:
    text = "What is in this picture?"
    stream = client.ask(text, image=SAMPLES / "photos" / f"{name}.jpg", max_tokens=40)
    answer = await stream.answer()
    assert name in answer.text.lower()
    history: list[Turn] = [
        {"role": "user", "content": text, "labels": stream.labels},
        {"role": "assistant", "content": answer.text},
    ]
    again = await client.ask("What do you see?", history=history, max_tokens=40).answer()
    assert name in again.text.lower()
