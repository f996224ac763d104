"""The assistant on the demo's engines: questions about pictures, typed and spoken, and what is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from trimodal.client import Client
from trimodal.demo.assistant import Question, questions, topics
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

DEMO = Path(__file__).parents[2] / "build" / "demo"
TOPICS = topics(DEMO)
SHOWN = questions(TOPICS)


@pytest.fixture(scope="module", params=["fast", pytest.param("reproducible", marks=pytest.mark.slow)])
def server(serve: Callable[..., TritonServer], request: pytest.FixtureRequest) -> TritonServer:
    return serve(("assistant",), changes={"llm": {"numerics": request.param}})


@pytest.fixture
async def client(server: TritonServer) -> AsyncIterator[Client]:
    async with Client(server.grpc_url) as client:
        yield client


@pytest.mark.parametrize("question", SHOWN, ids=lambda one: one.text or one.audio)
async def test_what_the_demo_shows_is_answered_right(client: Client, question: Question) -> None:
    image, audio = (DEMO / file if file else None for file in (question.image, question.audio))
    answer = await client.ask(question.text, image=image, audio=audio, max_tokens=120).answer()
    assert re.fullmatch(question.answer, answer.text)


async def test_each_sample_picture_is_named_by_its_digit(client: Client) -> None:
    for number, image in enumerate(sorted((DEMO / "vision" / "samples").iterdir())):
        digit = image.name.split("-")[1]
        recording = DEMO / "speech" / "questions" / ("01-what-digit.wav", "02-which-number.wav")[number % 2]
        for text, audio in (("Which number do you see?", None), (None, recording)):
            answer = await client.ask(text, image=image, audio=audio).answer()
            assert answer.text == f"The picture shows the digit {digit}.", (image.name, text)
