"""Models and chats in text."""

from __future__ import annotations

import asyncio

import openai

from tests.e2e.gateway.calls.table import LAMBDA, TOPICS, Demo, call
from trimodal.demo.acts import BURST

# Long on purpose: its KV blocks are what a second question finds in the prefix cache.
HANDBOOK = (
    "You are a pocket reference of the Python language. Answer with the first sentences of the "
    "documentation and nothing else. The language reference describes the syntax and the core semantics. "
    "It is terse, but attempts to be exact and complete. The semantics of non-essential built-in object "
    "types and of the built-in functions and modules are described in the library reference. For an informal "
    "introduction to the language, see the tutorial. "
)
TRUTH = TOPICS["lambda"]
MODELS = {"llm", "vision", "speech", "embedding", "assistant"}


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def said(answer: openai.types.chat.ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


@call
def models_are_listed(demo: Demo) -> str:
    found = list(demo.client.models.list())
    assert {model.id for model in found} >= MODELS
    assert {model.object for model in found} == {"model"}
    return ", ".join(sorted(model.id for model in found))


@call
def a_model_is_retrieved(demo: Demo) -> str:
    model = demo.client.models.retrieve("llm")
    assert (model.id, model.owned_by) == ("llm", "trimodal")
    return model.id


@call
async def models_are_listed_async(demo: Demo) -> str:
    async with demo.asynchronous() as client:
        found = [model.id async for model in client.models.list()]
    assert set(found) >= MODELS
    return f"{len(found)} models"


@call
def whole(demo: Demo) -> str:
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
    return said(answer)


@call
def streamed(demo: Demo) -> str:
    chunks = list(demo.client.chat.completions.create(model="llm", messages=LAMBDA, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == TRUTH
    assert len({chunk.id for chunk in chunks}) == 1
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len(chunks) > 5, "it came piece by piece"
    return f"{len(chunks)} chunks"


@call
def a_stream_ends_with_its_usage(demo: Demo) -> str:
    create = demo.client.chat.completions.create
    counts = create(model="llm", messages=LAMBDA).usage
    *chunks, last = create(model="llm", messages=LAMBDA, stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        counts.prompt_tokens, counts.completion_tokens,
    )  # fmt: skip
    return str(last.usage.total_tokens)


@call
def the_packages_own_stream(demo: Demo) -> str:
    with demo.client.chat.completions.stream(model="llm", messages=LAMBDA) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == said(final) == TRUTH
    return f"{len(deltas)} deltas"


@call
async def whole_async(demo: Demo) -> str:
    async with demo.asynchronous() as client:
        answer = await client.chat.completions.create(
            model="llm", messages=user("explain the while statement")
        )
    assert said(answer) == TOPICS["while"]
    return said(answer)


@call
async def streamed_async(demo: Demo) -> str:
    async with demo.asynchronous() as client:
        chunks = await client.chat.completions.create(model="llm", messages=LAMBDA, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    assert text == TRUTH
    return text


@call
async def sixteen_at_once(demo: Demo) -> str:
    async with demo.asynchronous() as client:
        create = client.chat.completions.create
        asked = [create(model="llm", messages=user(question)) for question, _ in BURST]
        answers = await asyncio.gather(*asked)
    assert [said(answer) for answer in answers] == [TOPICS[topic] for _, topic in BURST]
    return f"{len(answers)} right answers"


@call
def three_choices(demo: Demo) -> str:
    create = demo.client.chat.completions.create
    one, three = (create(model="llm", messages=LAMBDA, n=n) for n in (1, 3))
    assert [(choice.index, choice.message.content) for choice in three.choices] == [
        (index, TRUTH) for index in range(3)
    ]
    assert three.usage.prompt_tokens == one.usage.prompt_tokens, "a prompt counts once"
    assert three.usage.completion_tokens == 3 * one.usage.completion_tokens
    return f"{three.usage.completion_tokens} tokens"


@call
def two_choices_streamed(demo: Demo) -> str:
    texts = {0: "", 1: ""}
    for chunk in demo.client.chat.completions.create(model="llm", messages=LAMBDA, n=2, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert list(texts.values()) == [TRUTH] * 2
    return "both right"


@call
def a_stop_ends_it(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, stop=".")
    assert said(answer) == TRUTH.partition(".")[0]
    assert answer.choices[0].finish_reason == "stop"
    return said(answer)


@call
def the_first_of_several_stops(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, stop=["nowhere", " (", "."])
    assert said(answer) == TRUTH.partition(" (")[0]
    return said(answer)


@call
def max_tokens(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, max_tokens=5)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 5)
    assert TRUTH.startswith(said(answer))
    return said(answer)


@call
def max_completion_tokens(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, max_completion_tokens=4)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 4)
    return said(answer)


@call
def a_seed_repeats_an_answer(demo: Demo) -> str:
    def drawn(seed: int) -> str:
        create = demo.client.chat.completions.create
        return said(create(model="llm", messages=LAMBDA, temperature=2, seed=seed, max_tokens=40))

    first = drawn(1)
    assert drawn(1) == first
    assert len({first, drawn(2), drawn(3)}) == 3
    return first


@call
def a_small_top_p_is_greedy(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(model="llm", messages=LAMBDA, temperature=2, top_p=0.001)
    assert said(answer) == TRUTH
    return said(answer)


@call
def top_k_through_extra_body(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(
        model="llm", messages=LAMBDA, temperature=2, extra_body={"top_k": 1}
    )
    assert said(answer) == TRUTH
    return said(answer)


@call
def min_p_through_extra_body(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(
        model="llm", messages=LAMBDA, temperature=2, extra_body={"min_p": 0.99}
    )
    assert said(answer) == TRUTH
    return said(answer)


@call
def penalties(demo: Demo) -> str:
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
    return texts[3][0]


@call
def a_long_system_message(demo: Demo) -> str:
    messages = [{"role": "system", "content": HANDBOOK * 3}, *user("explain the while statement")]
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == TOPICS["while"]
    assert answer.usage.prompt_tokens > 200
    return f"{answer.usage.prompt_tokens} tokens of prompt"


@call
def the_role_developer(demo: Demo) -> str:
    messages = [{"role": "developer", "content": HANDBOOK}, *LAMBDA]
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == TRUTH
    return said(answer)


@call
def a_talk_of_three_turns(demo: Demo) -> str:
    messages = list(LAMBDA)
    for question in ("what is a tuple?", "what is a slice?"):
        answer = demo.client.chat.completions.create(model="llm", messages=messages)
        # The package's own object goes back with all of its fields.
        messages += [answer.choices[0].message, *user(question)]
    answer = demo.client.chat.completions.create(model="llm", messages=messages)
    assert said(answer) == TOPICS["slice"]
    return said(answer)


@call
def parts_of_text(demo: Demo) -> str:
    content = [{"type": "text", "text": "what is a lambda?"}]
    answer = demo.client.chat.completions.create(model="llm", messages=[{"role": "user", "content": content}])
    assert said(answer) == TRUTH
    return said(answer)


@call
def a_question_off_topic_is_declined(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(model="llm", messages=user("What is the capital of France?"))
    assert said(answer).startswith("I only know a few topics")
    return said(answer)


@call
def fields_that_change_nothing(demo: Demo) -> str:
    answer = demo.client.chat.completions.create(
        model="llm", messages=[{**LAMBDA[0], "name": "ada"}], user="ada", metadata={"a": "b"},
        service_tier="auto", store=False, modalities=["text"], prompt_cache_key="x", safety_identifier="y",
    )  # fmt: skip
    assert said(answer) == TRUTH
    return said(answer)
