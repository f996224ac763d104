"""Log probabilities of a real language model, on a real Triton, by OpenAI's own package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.e2e.gateway.test_openai import gateway, opened, streamed_logprobs
from trimodal.client import Client
from trimodal.errors import InvalidArgument
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build]

CHAT = [{"role": "user", "content": "What is the capital of France?"}]
FREE = {"temperature": 2, "seed": 3, "max_tokens": 16}


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(models=("llm",), changes={"llm": {"cache": "exact", "numerics": "reproducible"}})


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[openai.OpenAI]:
    with gateway(server.grpc_url) as url, opened(url) as client:
        yield client


@pytest.mark.parametrize("options", [{"max_tokens": 16}, FREE], ids=["greedy", "sampled"])
def test_they_are_those_of_the_answer_every_time(client: openai.OpenAI, options: dict[str, object]) -> None:
    create = client.chat.completions.create
    plain = create(model="llm", messages=CHAT, **options)
    whole, again = (create(model="llm", messages=CHAT, logprobs=True, **options).choices[0] for _ in range(2))
    content = whole.logprobs.content
    text = b"".join(bytes(one.bytes) for one in content).decode(errors="replace")
    assert text == whole.message.content == plain.choices[0].message.content
    assert all(math.isfinite(one.logprob) and one.logprob <= 0 for one in content)
    assert len(content) in (plain.usage.completion_tokens, plain.usage.completion_tokens - 1)
    assert again.logprobs == whole.logprobs
    assert streamed_logprobs(client, model="llm", messages=CHAT, logprobs=True, **options) == content


def test_a_text_completion_and_a_form(client: openai.OpenAI) -> None:
    (choice,) = client.completions.create(
        model="llm", prompt="The capital of Japan is", logprobs=0, max_tokens=16
    ).choices
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[0] == 0
    assert all(value <= 0 for value in choice.logprobs.token_logprobs)
    form = {"type": "json_object"}
    held = client.chat.completions.create(
        model="llm", messages=CHAT, logprobs=True, response_format=form, max_tokens=16
    ).choices[0]
    assert "".join(one.token for one in held.logprobs.content) == held.message.content


def test_who_asks_beside_others_of_the_same_question_gets_them(client: openai.OpenAI) -> None:
    def ask(asks: bool) -> object:
        options = {"logprobs": True} if asks else {}
        (choice,) = client.chat.completions.create(
            model="llm", messages=CHAT, max_tokens=16, **options
        ).choices
        return choice.logprobs and "".join(one.token for one in choice.logprobs.content)

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(ask, [True, False] * 4))
    assert set(told[1::2]) == {None}
    assert len(set(told[::2])) == 1
    assert told[0]


async def test_more_than_the_engine_has_is_refused(server: TritonServer, client: openai.OpenAI) -> None:
    problem = "top_logprobs is 2: engine 'openvino' tells 0 at most"
    with pytest.raises(openai.BadRequestError, match=problem) as caught:
        client.chat.completions.create(model="llm", messages=CHAT, logprobs=True, top_logprobs=2)
    assert caught.value.param == "top_logprobs"
    async with Client(server.grpc_url) as direct:
        with pytest.raises(InvalidArgument, match=problem):
            await direct.complete("a", top_logprobs=2)
        answer = await direct.complete("What is the capital of Egypt?", max_tokens=16, top_logprobs=0)
    assert "".join(one.token for one in answer.logprobs) == answer.text
