"""Log probabilities of chats and text completions, as OpenAI's package reads them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.conftest import ANSWER, CHAT, Serve, fake_triton
from tests.gateway.openai.test_conversation import IMAGE, user
from tests.gateway.openai.test_tools import CALL, TOOL
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.client.transports.tensors import strings

WORDS = len(ANSWER.split())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [None, 0, 3])
def test_a_chats_tokens_whole_and_streamed(serve: Serve, stream: bool, top: int | None) -> None:
    served = serve()
    more = {} if top is None else {"top_logprobs": top}
    asked = {"model": "llm", "messages": CHAT, "logprobs": True, **more}
    if stream:
        with served.openai().chat.completions.stream(**asked) as events:
            (choice,) = events.get_final_completion().choices
    else:
        (choice,) = served.openai().chat.completions.create(**asked).choices
    assert served.triton.requests[0].inputs["top_logprobs"].tolist() == [top or 0]
    content = choice.logprobs.content
    assert choice.message.content == "".join(one.token for one in content) == ANSWER
    assert b"".join(bytes(one.bytes) for one in content).decode() == ANSWER
    assert [one.logprob for one in content] == [-(place + 1) / 8 for place in range(WORDS)]
    assert {len(one.top_logprobs) for one in content} == {top or 0}
    if top:
        first = [(one.token, one.logprob) for one in content[0].top_logprobs]
        assert first == [(content[0].token, -0.125), ("?", -1.125), ("??", -2.125)][:top]


def test_each_chunk_of_a_stream_has_those_of_its_text(serve: Serve) -> None:
    create = serve().openai().chat.completions.create
    for chunk in create(model="llm", messages=CHAT, logprobs=True, stream=True, n=2):
        (choice,) = chunk.choices
        told = choice.logprobs.content if choice.logprobs else []
        assert "".join(one.token for one in told) == (choice.delta.content or "")


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_calls_are_those_that_the_model_wrote(serve: Serve, stream: bool) -> None:
    served = serve(fake_triton(llm=scripted(f"Wait.\n{CALL}")))
    asked = {"model": "llm", "messages": CHAT, "tools": [TOOL], "logprobs": True}
    if stream:
        chunks = served.openai().chat.completions.create(**asked, stream=True)
        parts = [chunk.choices[0].logprobs for chunk in chunks]
        told = [one for part in parts if part for one in part.content]
    else:
        (choice,) = served.openai().chat.completions.create(**asked).choices
        assert choice.message.tool_calls
        told = choice.logprobs.content
    assert "".join(one.token for one in told) == f"Wait.\n{CALL}"


def test_who_does_not_ask_gets_none_and_asks_the_model_for_none(serve: Serve) -> None:
    served = serve()
    for more in ({}, {"logprobs": False}):
        answer = served.chat(**more)
        assert answer.choices[0].logprobs is None
    answer = served.openai().completions.create(model="llm", prompt="a")
    assert answer.choices[0].logprobs is None
    assert not any("top_logprobs" in request.inputs for request in served.triton.requests)


def test_beside_a_picture_they_are_the_assistants(serve: Serve) -> None:
    async def assistant(request):  # type: ignore[no-untyped-def]
        assert request.inputs["top_logprobs"].tolist() == [2]
        async for outputs in scripted("A seven.")(request):
            yield {"stage": strings([b"answer"]), **outputs}

    create = serve(fake_triton(assistant=assistant)).openai().chat.completions.create
    (choice,) = create(model="llm", messages=[user("what?", IMAGE)], logprobs=True, top_logprobs=2).choices
    assert "".join(one.token for one in choice.logprobs.content) == "A seven."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [0, 2])
def test_text_completions_have_their_own_form(serve: Serve, stream: bool, top: int) -> None:
    created = serve().openai().completions.create(model="llm", prompt="a", logprobs=top, stream=stream)
    choices = [chunk.choices[0] for chunk in created] if stream else created.choices
    told = [choice.logprobs for choice in choices if choice.logprobs]
    tokens = [token for one in told for token in one.tokens]
    offsets = [offset for one in told for offset in one.text_offset]
    text = "".join(choice.text for choice in choices)
    assert text == "".join(tokens) == ANSWER
    assert all(text[begin:].startswith(token) for begin, token in zip(offsets, tokens, strict=True))
    assert offsets == sorted(set(offsets))
    values = [value for one in told for value in one.token_logprobs]
    assert values == [-(place + 1) / 8 for place in range(WORDS)]
    if top:
        assert told[0].top_logprobs[0] == {"An": -0.125, "?": -1.125}
    else:
        assert {one.top_logprobs for one in told} == {None}


def test_offsets_count_characters_also_where_tokens_are_parts_of_them(serve: Serve) -> None:
    raws = ["é".encode()[:1], "é".encode()[1:], b"x"]
    told = [
        {"token": raw.decode(errors="backslashreplace"), "bytes": list(raw), "logprob": -1} for raw in raws
    ]

    async def llm(request):  # type: ignore[no-untyped-def]
        yield {
            **llm_outputs("éx", "stop", completion_tokens=3),
            "logprobs": strings([json.dumps(told).encode()]),
        }

    answer = serve(fake_triton(llm=llm)).openai().completions.create(model="llm", prompt="a", logprobs=0)
    (choice,) = answer.choices
    assert choice.logprobs.tokens == ["\\xc3", "\\xa9", "x"]
    assert choice.logprobs.text_offset == [0, 0, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_of_which_a_stop_string_leaves_nothing_to_send_is_told(serve: Serve, stream: bool) -> None:
    """Its first part was sent before the rest turned out to begin the stop string."""

    async def llm(request):  # type: ignore[no-untyped-def]
        yield llm_outputs("a")
        told = [{"token": "a\n", "bytes": [97, 10], "logprob": -1}]
        yield {**llm_outputs("", "stop"), "logprobs": strings([json.dumps(told).encode()])}

    client = serve(fake_triton(llm=llm)).openai()
    created = client.completions.create(model="llm", prompt="b", logprobs=0, stop="\n\n", stream=stream)
    choices = [chunk.choices[0] for chunk in created] if stream else created.choices
    assert [token for one in choices if one.logprobs for token in one.logprobs.tokens] == ["a\n"]
    asked: Any = {"model": "llm", "input": "b", "include": ["message.output_text.logprobs"]}
    created = client.responses.create(**asked, stream=stream)
    answer = [*created][-1].response if stream else created
    assert [one.token for one in answer.output[0].content[0].logprobs] == ["a\n"]


async def evaluated(request: Request) -> AsyncIterator[Tensors]:
    """An llm as lm-evaluation-harness asks it: what its prompt cost, and one token more."""
    asked = int(request.inputs["prompt_logprobs"][0])
    entries = [
        {"token": "a", "bytes": [97], "logprob": None, "top_logprobs": []},
        {
            "token": "b",
            "bytes": [98],
            "logprob": -2.0,
            "top_logprobs": [{"token": "c", "bytes": [99], "logprob": -0.5}],
        },
    ]
    one = {"token": "d", "bytes": [100], "logprob": -1.0, "top_logprobs": []}
    told = {
        "prompt_logprobs": strings([json.dumps(entries).encode()]),
        "logprobs": strings([json.dumps([one]).encode()]),
    }
    assert asked == 1
    yield {**llm_outputs("d", "length"), **told}


@pytest.mark.parametrize("prompt", ["ab", [3, 4]])
def test_a_prompt_is_echoed_with_its_log_probabilities(serve: Serve, prompt: Any) -> None:
    client = serve(fake_triton(llm=evaluated)).openai()
    asked = {"model": "llm", "prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 1}
    choice = client.completions.create(**asked).choices[0]
    assert choice.text == "abd"
    logprobs = choice.logprobs.model_dump()
    assert logprobs == {
        "tokens": ["a", "b", "d"],
        "token_logprobs": [None, -2.0, -1.0],
        "top_logprobs": [None, {"c": -0.5, "b": -2.0}, {"d": -1.0}],
        "text_offset": [0, 1, 2],
    }
    (chunk, *_) = client.completions.create(**asked, stream=True)
    assert (chunk.choices[0].text, chunk.choices[0].logprobs.model_dump()) == ("abd", logprobs)
