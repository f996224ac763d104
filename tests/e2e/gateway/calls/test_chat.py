"""Chats in text: answers, the fields that shape them, the cache, a client that leaves."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.conftest import wait_until
from tests.e2e.gateway.calls.starter import FACTS, GREECE, JAPAN, Starter, said, user

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]


def test_whole(starter: Starter) -> None:
    answer = starter.client.chat.completions.create(model="llm", messages=JAPAN)
    assert "Tokyo" in said(answer)
    assert (answer.object, answer.model, answer.choices[0].finish_reason) == (
        "chat.completion",
        "llm",
        "stop",
    )
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens < usage.prompt_tokens < 128


def test_streamed(starter: Starter) -> None:
    chunks = list(starter.client.chat.completions.create(model="llm", messages=JAPAN, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert "Tokyo" in text
    assert len({chunk.id for chunk in chunks}) == 1
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len(chunks) > 3, "it came piece by piece"


async def test_sixteen_at_once(starter: Starter) -> None:
    async with starter.asynchronous() as client:
        create = client.chat.completions.create
        asked = [create(model="llm", messages=user(question)) for question in FACTS]
        answers = await asyncio.gather(*asked)
    told = zip(map(said, answers), FACTS.values(), strict=True)
    assert not [answer for answer, fact in told if fact not in answer]


def test_three_choices(starter: Starter) -> None:
    create = starter.client.chat.completions.create
    one, three = (create(model="llm", messages=JAPAN, n=n, temperature=0) for n in (1, 3))
    assert [(choice.index, choice.message.content) for choice in three.choices] == [
        (index, said(one)) for index in range(3)
    ]
    assert three.usage.prompt_tokens == one.usage.prompt_tokens, "a prompt counts once"
    assert three.usage.completion_tokens == 3 * one.usage.completion_tokens


def test_what_the_assistant_has_begun_goes_on(starter: Starter) -> None:
    create = starter.client.chat.completions.create
    begun = [*JAPAN, {"role": "assistant", "content": "The capital of"}]
    assert said(create(model="llm", messages=begun)) == " Japan is Tokyo."
    anew = create(model="llm", messages=begun, extra_body={"add_generation_prompt": True})
    assert said(anew).startswith("The capital of Japan")


@pytest.mark.parametrize("field", [{"min_tokens": 24}, {"ignore_eos": True}], ids=str)
def test_an_answer_that_may_not_end(starter: Starter, field: dict[str, object]) -> None:
    create = starter.client.chat.completions.create
    answer = create(model="llm", messages=JAPAN, max_tokens=24, extra_body=field)
    assert said(answer).startswith("The capital of Japan is Tokyo.")
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 24)


def test_a_stop_ends_it(starter: Starter) -> None:
    answer = starter.client.chat.completions.create(model="llm", messages=JAPAN, stop=".")
    assert "Tokyo" in said(answer)
    assert "." not in said(answer)
    assert answer.choices[0].finish_reason == "stop"


def test_a_seed_repeats_an_answer(starter: Starter) -> None:
    def drawn(seed: int) -> str:
        create = starter.client.chat.completions.create
        return said(create(model="llm", messages=JAPAN, temperature=2, seed=seed, max_tokens=40))

    first = drawn(1)
    assert drawn(1) == first
    assert len({first, drawn(2), drawn(3)}) == 3


def test_penalties(starter: Starter) -> None:
    """Draws by the same seeds other texts. Several seeds: a draw may end before a token comes twice."""
    penalised = (
        {},
        {"frequency_penalty": 2},
        {"presence_penalty": 2},
        {"extra_body": {"repetition_penalty": 5}},
    )

    def drawn(more: dict[str, object]) -> list[str]:
        asked = {"model": "llm", "messages": JAPAN, "temperature": 2, "max_tokens": 24}
        create = starter.client.chat.completions.create
        return [said(create(**asked, **more, seed=seed)) for seed in range(1, 4)]

    texts = [drawn(more) for more in penalised]
    assert texts[0] not in texts[1:]


def test_a_talk_of_three_turns(starter: Starter) -> None:
    messages = list(JAPAN)
    for question in (GREECE, "What is the capital of Egypt?"):
        answer = starter.client.chat.completions.create(model="llm", messages=messages)
        # The package's own object goes back with all of its fields.
        messages += [answer.choices[0].message, *user(question)]
    answer = starter.client.chat.completions.create(model="llm", messages=messages)
    assert "Cairo" in said(answer)


@pytest.mark.parametrize("field", [{"top_k": 1}, {"min_p": 0.99}], ids=str)
def test_filters_that_leave_one_token(starter: Starter, field: dict[str, object]) -> None:
    create = starter.client.chat.completions.create
    assert "Tokyo" in said(create(model="llm", messages=JAPAN, temperature=2, extra_body=field))


def test_the_cache_answers_again(starter: Starter) -> None:
    def source() -> str:
        create = starter.client.chat.completions.with_raw_response.create
        raw = create(model="llm", messages=user(GREECE), extra_headers={"cache-control": ""})
        return raw.headers["x-trimodal-cache"]

    assert source() == "miss"
    wait_until(lambda: source() == "exact", "the answer to be stored")


def left(starter: Starter) -> float:
    """How many clients left before their answer's end, counted while none is there."""
    wait_until(lambda: starter.metric("in_flight") == 1, "no request but that for /metrics")
    return starter.metric("requests_total", model="llm", status="499")


def test_a_stream_that_is_closed(starter: Starter) -> None:
    """Of thousands of tokens: its client's leaving is what ends it, and nothing is answered any more."""
    long = {"model": "llm", "messages": JAPAN, "n": 16, "temperature": 2, "seed": 1, "max_tokens": 900}
    before = left(starter)
    with starter.client.chat.completions.create(**long, stream=True) as stream:
        next(stream)
    wait_until(lambda: left(starter) == before + 1, "the client to be missed")
