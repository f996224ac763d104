"""Log probabilities of a real language model, on a real Triton, by OpenAI's own package."""

from __future__ import annotations

import math

import pytest

from tests.e2e.gateway.calls.starter import JAPAN, Starter
from tests.e2e.gateway.test_openai import streamed_logprobs

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
