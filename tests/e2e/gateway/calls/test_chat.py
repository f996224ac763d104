"""Models and chats in text."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.gateway.calls.demo import HANDBOOK, LAMBDA, TOPICS, TRUTH, Demo, said, user
from trimodal.demo.acts import BURST

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

MODELS = {"llm", "vision", "speech", "embedding", "assistant"}


def test_models_are_listed(demo: Demo) -> None:
    found = list(demo.client.models.list())
    assert {model.id for model in found} >= MODELS
    assert {model.object for model in found} == {"model"}


def test_a_model_is_retrieved(demo: Demo) -> None:
    model = demo.client.models.retrieve("llm")
    assert (model.id, model.owned_by) == ("llm", "trimodal")


def test_whole(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA)
    assert said(answer) == TRUTH
    assert (answer.object, answer.model, answer.choices[0].finish_reason) == (
        "chat.completion",
        "llm",
        "stop",
    )
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.prompt_tokens < usage.completion_tokens < 128


def test_streamed(demo: Demo) -> None:
    chunks = list(demo.client.chat.completions.create(model="llm", messages=LAMBDA, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == TRUTH
    assert len({chunk.id for chunk in chunks}) == 1
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len(chunks) > 5, "it came piece by piece"


def test_a_stream_ends_with_its_usage(demo: Demo) -> None:
    create = demo.client.chat.completions.create
    counts = create(model="llm", messages=LAMBDA).usage
    *chunks, last = create(model="llm", messages=LAMBDA, stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        counts.prompt_tokens, counts.completion_tokens,
    )  # fmt: skip


async def test_streamed_async(demo: Demo) -> None:
    async with demo.asynchronous() as client:
        chunks = await client.chat.completions.create(model="llm", messages=LAMBDA, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    assert text == TRUTH


async def test_sixteen_at_once(demo: Demo) -> None:
    async with demo.asynchronous() as client:
        create = client.chat.completions.create
        asked = [create(model="llm", messages=user(question)) for question, _ in BURST]
        answers = await asyncio.gather(*asked)
    assert [said(answer) for answer in answers] == [TOPICS[topic] for _, topic in BURST]


def test_three_choices(demo: Demo) -> None:
    create = demo.client.chat.completions.create
    one, three = (create(model="llm", messages=LAMBDA, n=n) for n in (1, 3))
    assert [(choice.index, choice.message.content) for choice in three.choices] == [
        (index, TRUTH) for index in range(3)
    ]
    assert three.usage.prompt_tokens == one.usage.prompt_tokens, "a prompt counts once"
    assert three.usage.completion_tokens == 3 * one.usage.completion_tokens


def test_two_choices_streamed(demo: Demo) -> None:
    texts = {0: "", 1: ""}
    for chunk in demo.client.chat.completions.create(model="llm", messages=LAMBDA, n=2, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert list(texts.values()) == [TRUTH] * 2


def test_a_stop_ends_it(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, stop=".")
    assert said(answer) == TRUTH.partition(".")[0]
    assert answer.choices[0].finish_reason == "stop"


def test_max_tokens(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, max_tokens=5)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 5)
    assert TRUTH.startswith(said(answer))


def test_a_seed_repeats_an_answer(demo: Demo) -> None:
    def drawn(seed: int) -> str:
        create = demo.client.chat.completions.create
        return said(create(model="llm", messages=LAMBDA, temperature=2, seed=seed, max_tokens=40))

    first = drawn(1)
    assert drawn(1) == first
    assert len({first, drawn(2), drawn(3)}) == 3


def test_top_k_through_extra_body(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(
        model="llm", messages=LAMBDA, temperature=2, extra_body={"top_k": 1}
    )
    assert said(answer) == TRUTH


def test_min_p_through_extra_body(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(
        model="llm", messages=LAMBDA, temperature=2, extra_body={"min_p": 0.99}
    )
    assert said(answer) == TRUTH


def test_penalties(demo: Demo) -> None:
    """Draws by the same seeds other texts. Greedy, a recital is too sure to be changed by a penalty.

    Several seeds: the model is trained on the spot, and one draw may end before a token comes twice.
    """
    penalised = (
        {},
        {"frequency_penalty": 2},
        {"presence_penalty": 2},
        {"extra_body": {"repetition_penalty": 5}},
    )

    def drawn(more: dict[str, object]) -> list[str]:
        asked = {"model": "llm", "messages": LAMBDA, "temperature": 2, "max_tokens": 60}
        create = demo.client.chat.completions.create
        return [said(create(**asked, **more, seed=seed)) for seed in range(1, 9)]

    texts = [drawn(more) for more in penalised]
    assert texts[0] not in texts[1:]


def test_a_long_system_message(demo: Demo) -> None:
    messages = [{"role": "system", "content": HANDBOOK * 3}, *user("explain the while statement")]
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == TOPICS["while"]
    assert answer.usage.prompt_tokens > 200


def test_the_role_developer(demo: Demo) -> None:
    messages = [{"role": "developer", "content": HANDBOOK}, *LAMBDA]
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == TRUTH


def test_a_talk_of_three_turns(demo: Demo) -> None:
    messages = list(LAMBDA)
    for question in ("what is a tuple?", "what is a slice?"):
        answer = demo.client.chat.completions.create(model="llm", messages=messages)
        # The package's own object goes back with all of its fields.
        messages += [answer.choices[0].message, *user(question)]
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == TOPICS["slice"]


def test_parts_of_text(demo: Demo) -> None:
    content = [{"type": "text", "text": "what is a lambda?"}]
    answer = demo.client.chat.completions.create(model="llm", messages=[{"role": "user", "content": content}])
    assert said(answer) == TRUTH


def test_a_question_off_topic_is_declined(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(model="llm", messages=user("What is the capital of France?"))
    assert said(answer).startswith("I only know a few topics")


def test_fields_that_change_nothing(demo: Demo) -> None:
    answer = demo.client.chat.completions.create(
        model="llm", messages=[{**LAMBDA[0], "name": "ada"}], user="ada", metadata={"a": "b"},
        service_tier="auto", store=False, modalities=["text"], prompt_cache_key="x", safety_identifier="y",
    )  # fmt: skip
    assert said(answer) == TRUTH
