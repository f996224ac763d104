"""Chat and text completions, called with OpenAI's own package."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import ANSWER, CHAT, LIMIT_S, Serve, connect, fails, fake_triton, raw_chat
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.client.transports.tensors import strings
from trimodal.errors import InternalError, InvalidArgument, Unavailable
from trimodal.gateway.keys import Key, add_key

WORDS = len(ANSWER.split())


def test_a_whole_answer(serve: Serve) -> None:
    served = serve()
    raw = served.openai().chat.completions.with_raw_response.create(model="llm", messages=CHAT)
    answer = raw.parse()
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        ANSWER,
        "stop",
    )
    assert (answer.object, answer.model) == ("chat.completion", "llm")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, WORDS)
    assert answer.usage.total_tokens == 8 + WORDS
    assert raw.headers["x-trimodal-cache"] == "miss"
    assert {part.split(";")[0] for part in raw.headers["server-timing"].split(", ")} == {
        "queue",
        "ttft",
        "total",
    }
    assert raw.headers["x-request-id"] == answer._request_id != ""


def test_a_stream(serve: Serve) -> None:
    *chunks, usage = serve().chat(stream=True, stream_options={"include_usage": True})
    assert (usage.choices, usage.usage.prompt_tokens, usage.usage.completion_tokens) == ([], 8, WORDS)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_the_stream_ends_with_done_and_is_not_kept_back_by_proxies(serve: Serve) -> None:
    body = {"model": "llm", "messages": CHAT, "stream": True}
    answer = httpx.post(f"{serve().url}/v1/chat/completions", json=body)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")


def test_a_stream_tells_where_its_time_went(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(ANSWER, step=0.02)))  # uvloop's timers ring up to 1 ms early
    *_, last = served.chat(stream=True)
    told = last.trimodal
    assert 10 <= told["ttft_ms"] < told["total_ms"]
    assert told["total_ms"] >= 10 * WORDS


def test_several_choices_have_seeds_of_their_own(serve: Serve) -> None:
    served = serve()
    answer = served.chat(n=3, seed=7, temperature=0.5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [int(request.inputs["seed"][0]) for request in served.triton.requests] == [7, 8, 9]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 3 * WORDS)
    served.triton.requests.clear()
    chunks = list(served.chat(n=2, stream=True))
    assert len({int(request.inputs["seed"][0]) for request in served.triton.requests}) == 2, "no twins"
    for index in (0, 1):
        mine = [one.choices[0] for one in chunks if one.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == ANSWER
        assert mine[-1].finish_reason == "stop"


def test_openais_package_gathers_several_choices(serve: Serve) -> None:
    """It takes the first chunk for the choice 0: the second one's text became part of the first's."""

    spoken: list[int] = []

    async def last_first(request: Request) -> AsyncIterator[Tensors]:
        choice = int(request.inputs["seed"][0]) - 7
        while len(spoken) % 3 != 2 - choice:
            await asyncio.sleep(0)
        spoken.append(choice)
        yield llm_outputs(f"choice {choice}", "stop")

    client = serve(fake_triton(llm=last_first)).openai()
    asked: dict[str, Any] = {"model": "llm", "messages": CHAT, "n": 3, "seed": 7}
    roles = [one.choices[0] for one in client.chat.completions.create(**asked, stream=True)][:3]
    assert [(one.index, one.delta.role) for one in roles] == [
        (0, "assistant"),
        (1, "assistant"),
        (2, "assistant"),
    ]
    with client.chat.completions.stream(**asked) as stream:
        answer = stream.get_final_completion()
    told = [(one.index, one.message.content, one.finish_reason) for one in answer.choices]
    assert told == [(0, "choice 0", "stop"), (1, "choice 1", "stop"), (2, "choice 2", "stop")]


def test_what_is_sent_to_triton(serve: Serve) -> None:
    served = serve()
    chat = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]
    served.openai().chat.completions.create(
        model="llm", messages=chat, max_completion_tokens=9, temperature=0.5, top_p=0.9, seed=3,
        stop=["x", "y"], user="somebody", extra_headers={"x-request-id": "mine-1", "x-slo-ttft-ms": "900"},
        presence_penalty=0.5, frequency_penalty=-1,
        extra_body={"top_k": 4, "min_p": 0.25, "repetition_penalty": 1.5},
    )  # fmt: skip
    (request,) = served.triton.requests
    inputs = {name: value.tolist() for name, value in request.inputs.items()}
    assert inputs.pop("messages") == [
        b'[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one\\ntwo"}]'
    ]
    assert inputs.pop("temperature") == [0.5]
    assert inputs.pop("top_p") == pytest.approx([0.9])
    assert inputs == {
        "min_p": [0.25], "presence_penalty": [0.5], "frequency_penalty": [-1.0], "repetition_penalty": [1.5],
        "max_tokens": [9], "seed": [3], "top_k": [4], "stop": [b"x", b"y"], "ttft_deadline_ms": [900],
    }  # fmt: skip
    assert request.id == "mine-1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidArgument("max_tokens is 9000: it must be between 1 and 512"), 400, "invalid_request_error"),
        (Unavailable("the queue is full", 1.5), 503, "overloaded_error"),
        (InternalError("the model failed"), 500, "api_error"),
    ],
)
def test_a_refusal_has_its_status_also_of_a_stream(
    serve: Serve, error: Exception, status: int, kind: str, stream: bool
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        serve(fake_triton(llm=fails(error))).chat(stream=stream)
    assert caught.value.status_code == status
    assert caught.value.type == kind
    if status == 503:
        headers = caught.value.response.headers
        assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1500")
    if status == 400:
        assert caught.value.param == "max_tokens"


def test_an_unknown_model_and_a_server_that_is_gone(serve: Serve) -> None:
    served = serve(fake_triton())
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        served.openai().chat.completions.create(model="other", messages=CHAT)
    served.triton.reachable = False
    with pytest.raises(openai.InternalServerError, match="no model server takes requests") as caught:
        served.chat()
    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "1")
    assert "nowhere" not in str(caught.value), "the address behind is no client's business"


def test_openais_client_tries_again_when_told_to(serve: Serve) -> None:
    asked = []

    async def once_full(request):  # type: ignore[no-untyped-def]
        asked.append(request)
        if len(asked) == 1:
            raise Unavailable("the queue is full", 0.05)
        yield llm_outputs("ok", "stop")

    client = serve(fake_triton(llm=once_full)).openai(max_retries=2)
    answer = client.chat.completions.create(model="llm", messages=CHAT)
    assert (answer.choices[0].message.content, len(asked)) == ("ok", 2)


def test_an_error_in_mid_stream_is_an_event(serve: Serve) -> None:
    broken = fails(InternalError("the engine ran out of KV blocks for this request"), "one")
    stream = serve(fake_triton(llm=broken)).chat(stream=True)
    assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "one"]
    with pytest.raises(openai.APIError, match="KV blocks"):
        next(stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("first_s", [0.0, 30.0], ids=["while it answers", "before the first token"])
def test_a_client_that_leaves_ends_the_generation(serve: Serve, stream: bool, first_s: float) -> None:
    async def slow(request):  # type: ignore[no-untyped-def]
        await asyncio.sleep(first_s)
        while True:
            yield llm_outputs("word ")
            await asyncio.sleep(0.01)

    served = serve(fake_triton(llm=slow), silence=60.0)
    with connect(served.url) as connection:
        connection.sendall(raw_chat(stream=stream))
        wait_until(
            lambda: any(one.name == "llm" and one.inputs for one in served.triton.requests), "it began"
        )
        if stream and not first_s:
            assert connection.recv(1000)
    wait_until(lambda: len(served.triton.cancelled) == 1, "the generation ends")


def test_text_completions(serve: Serve) -> None:
    served = serve()
    client = served.openai()
    answer = client.completions.create(model="llm", prompt=["a", "b"], n=2, echo=True)
    for request in served.triton.requests:
        assert request.inputs["apply_chat_template"].tolist() == [False], "continued, not answered"
    assert [choice.text for choice in answer.choices] == [f"{one}{ANSWER}" for one in "aabb"]
    assert answer.usage.prompt_tokens == 16
    chunks = list(client.completions.create(model="llm", prompt="a", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_prompts_of_token_ids(serve: Serve) -> None:
    served = serve()
    client = served.openai()
    asked: list[tuple[Any, list[list[int]]]] = [([1, 2], [[1, 2]]), ([[1, 2], [3]], [[1, 2], [3]])]
    for prompt, sent in asked:
        served.triton.requests.clear()
        answer = client.completions.create(model="llm", prompt=prompt)
        assert [choice.text for choice in answer.choices] == [ANSWER] * len(sent)
        told = [request.inputs["prompt_token_ids"].tolist() for request in served.triton.requests]
        assert sorted(told) == sorted(sent)


@pytest.mark.parametrize("stream", [False, True])
def test_many_prompts_are_sent_a_few_at_a_time(serve: Serve, stream: bool) -> None:
    running, most = 0, 0

    async def counted(request):  # type: ignore[no-untyped-def]
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0.005)
            yield llm_outputs("a", "stop", completion_tokens=1)
        finally:
            running -= 1

    client = serve(fake_triton(llm=counted)).openai()
    answer: Any = client.completions.create(model="llm", prompt=["a"] * 64, n=2, stream=stream)
    parts = [part for chunk in answer for part in chunk.choices] if stream else answer.choices
    assert {part.index for part in parts if part.text} == set(range(128))
    assert (most, running) == (8, 0)


def test_each_answer_counts_as_a_request(serve: Serve, file: Path) -> None:
    key = add_key(file, Key(name="a", requests_per_minute=10))
    client = serve(fake_triton(), keys=file).openai(key)
    client.completions.create(model="llm", prompt=["a"] * 8, n=2)
    with pytest.raises(openai.RateLimitError, match="10 requests a minute"):
        client.completions.create(model="llm", prompt="a")


def test_vllms_fields_reach_the_model(serve: Serve) -> None:
    served = serve()
    served.chat(
        logit_bias={"5": -100},
        extra_body={
            "min_tokens": 2, "ignore_eos": True, "stop_token_ids": [7], "continue_final_message": False,
            "add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": False},
        },
        reasoning_effort="low",
    )  # fmt: skip
    (request,) = served.triton.requests
    inputs = {name: value.tolist() for name, value in request.inputs.items() if name != "messages"}
    kwargs = inputs.pop("chat_template_kwargs")
    assert json.loads(kwargs[0]) == {"enable_thinking": False, "reasoning_effort": "low"}
    assert inputs == {
        "logit_bias": [b'{"5": -100.0}'], "min_tokens": [2], "ignore_eos": [True], "stop_token_ids": [7],
        "continue_final_message": [False], "add_generation_prompt": [True],
    }  # fmt: skip


def test_a_deadline_that_passed_is_told_beside_openais_reason(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted("some words", finish_reason="deadline")))
    answer = served.chat()
    assert answer.choices[0].finish_reason == "length"
    assert answer.trimodal["finish_reason"] == "deadline"


async def thinking(request: Request) -> AsyncIterator[Tensors]:
    """A model that thinks before it speaks."""
    for thought in ("Two", " and two."):
        yield {**llm_outputs("", completion_tokens=2), "reasoning": strings([thought.encode()])}
    yield {**llm_outputs("4", "stop", completion_tokens=3), "reasoning_tokens": np.array([2], np.int32)}


def test_thoughts_come_beside_the_content(serve: Serve) -> None:
    client = serve(fake_triton(llm=thinking)).openai()
    asked: dict[str, Any] = {"model": "llm", "messages": CHAT}
    answer = client.chat.completions.create(**asked, n=2)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 4
    reply = client.responses.create(model="llm", input="hi")
    assert reply.usage.output_tokens_details.reasoning_tokens == 2
    message = answer.choices[0].message
    assert (message.content, message.model_extra["reasoning_content"]) == ("4", "Two and two.")
    chunks = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked, stream=True)]
    thoughts = [one.model_extra.get("reasoning_content", "") for one in chunks]
    assert "".join(thoughts) == "Two and two."
    assert "".join(one.content or "" for one in chunks) == "4"
    plain = serve().openai().chat.completions.create(**asked)
    assert "reasoning_content" not in plain.choices[0].message.model_extra
    assert plain.usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("read", [True, False])
def test_the_copyable_program_and_nobody_who_reads_it(serve: Serve, read: bool) -> None:
    theirs, ours = os.pipe()
    program = Path(__file__).parents[3] / "clients" / "openai_chat.py"
    command = [sys.executable, str(program), "a question", "--url", f"{serve().url}/v1"]
    with open(theirs, encoding="utf-8") as answer, open(ours, "wb") as output:
        if not read:
            answer.close()
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False)
        output.close()
        assert done.returncode == (not read), done.stderr
        assert b"Traceback" not in done.stderr
        assert not read or answer.read() == f"{ANSWER}\n"
