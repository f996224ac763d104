"""Log probabilities of a real language model, on a real Triton, by OpenAI's own package."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.e2e.gateway.calls.starter import JAPAN, Starter
from tests.e2e.gateway.test_openai import streamed_logprobs
from trimodal.client import Client
from trimodal.errors import InvalidArgument

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

FREE = {"temperature": 2, "seed": 3, "max_tokens": 16}


@pytest.mark.parametrize("options", [{"max_tokens": 16}, FREE], ids=["greedy", "sampled"])
def test_they_are_those_of_the_answer_every_time(starter: Starter, options: dict[str, object]) -> None:
    create = starter.client.chat.completions.create
    plain = create(model="llm", messages=JAPAN, **options)
    asked = {"model": "llm", "messages": JAPAN, "logprobs": True, **options}
    whole, again = (create(**asked).choices[0] for _ in range(2))
    content = whole.logprobs.content
    text = b"".join(bytes(one.bytes) for one in content).decode(errors="replace")
    assert text == whole.message.content == plain.choices[0].message.content
    assert all(math.isfinite(one.logprob) and one.logprob <= 0 for one in content)
    assert len(content) in (plain.usage.completion_tokens, plain.usage.completion_tokens - 1)
    assert again.logprobs == whole.logprobs
    assert streamed_logprobs(starter.client, **asked) == content


def test_a_text_completion_and_a_form(starter: Starter) -> None:
    (choice,) = starter.client.completions.create(
        model="llm", prompt="The capital of Japan is", logprobs=0, max_tokens=16
    ).choices
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset[0] == 0
    assert all(value <= 0 for value in choice.logprobs.token_logprobs)
    form = {"type": "json_object"}
    held = starter.client.chat.completions.create(
        model="llm", messages=JAPAN, logprobs=True, response_format=form, max_tokens=16
    ).choices[0]
    assert "".join(one.token for one in held.logprobs.content) == held.message.content


def test_who_asks_beside_others_of_the_same_question_gets_them(starter: Starter) -> None:
    def ask(asks: bool) -> object:
        options = {"logprobs": True} if asks else {}
        (choice,) = starter.client.chat.completions.create(
            model="llm", messages=JAPAN, max_tokens=16, **options
        ).choices
        return choice.logprobs and "".join(one.token for one in choice.logprobs.content)

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(ask, [True, False] * 4))
    assert set(told[1::2]) == {None}
    assert len(set(told[::2])) == 1
    assert told[0]


async def test_more_than_the_engine_has_is_refused(starter: Starter) -> None:
    problem = "top_logprobs is 2: engine 'openvino' tells 0 at most"
    with pytest.raises(openai.BadRequestError, match=problem) as caught:
        starter.client.chat.completions.create(model="llm", messages=JAPAN, logprobs=True, top_logprobs=2)
    assert caught.value.param == "top_logprobs"
    async with Client(starter.grpc) as direct:
        with pytest.raises(InvalidArgument, match=problem):
            await direct.complete("a", top_logprobs=2)
        answer = await direct.complete("What is the capital of Egypt?", max_tokens=16, top_logprobs=0)
    assert "".join(one.token for one in answer.logprobs) == answer.text
