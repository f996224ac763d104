"""Answers of the demo's language model that are held to a form, on a real Triton, by OpenAI's own package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.conftest import wait_until
from tests.e2e.gateway.test_openai import gateway, opened
from tests.e2e.llm.test_cancel import metric
from trimodal.client import Client
from trimodal.errors import InvalidArgument
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

CHAT = [{"role": "user", "content": "what is a lambda?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a day.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


class Topic(BaseModel):
    kind: Literal["statement", "function", "type"]
    pages: int
    builtin: bool


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(models=("llm",), changes={"llm": {"cache": "coalesce"}})


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[openai.OpenAI]:
    with gateway(server.grpc_url) as url, opened(url) as client:
        yield client


def test_openais_parse_gives_an_object(client: openai.OpenAI) -> None:
    parse = client.chat.completions.parse
    answer = parse(model="llm", messages=CHAT, response_format=Topic, max_tokens=100)
    assert isinstance(answer.choices[0].message.parsed, Topic)
    assert answer.choices[0].finish_reason == "stop"
    with client.chat.completions.stream(model="llm", messages=CHAT, response_format=Topic) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Topic)


def test_any_object_and_an_answer_that_is_cut(client: openai.OpenAI) -> None:
    create = client.chat.completions.create
    form = {"type": "json_object"}
    cut = create(model="llm", messages=CHAT, response_format=form, max_tokens=3).choices[0]
    assert (cut.finish_reason, cut.message.content[0]) == ("length", "{")
    chosen = [
        create(model="llm", messages=CHAT, response_format=form, temperature=2, seed=seed, max_tokens=200)
        for seed in range(8)
    ]
    ended = [one.choices[0] for one in chosen if one.choices[0].finish_reason == "stop"]
    assert all(isinstance(json.loads(choice.message.content), dict) for choice in ended)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_must_be(client: openai.OpenAI, choice: object, stream: bool) -> None:
    asked = {
        "model": "llm", "messages": CHAT, "tools": [CLOCK, WEATHER], "tool_choice": choice, "max_tokens": 120,
        "temperature": 1, "seed": 3, "parallel_tool_calls": False,
    }  # fmt: skip
    if stream:
        with client.chat.completions.stream(**asked) as events:
            answer = events.get_final_completion()
    else:
        answer = client.chat.completions.create(**asked)
    (chosen,) = answer.choices
    (call,) = chosen.message.tool_calls
    assert (chosen.finish_reason, chosen.message.content or None) == ("tool_calls", None)
    assert call.id.startswith("call_")
    if choice != "required":
        assert call.function.name == "weather"
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        jsonschema.validate(arguments, WEATHER["function"]["parameters"])
    else:
        assert arguments == {}


def test_a_talk_with_calls_goes_on(client: openai.OpenAI) -> None:
    create = client.chat.completions.create
    named = {"type": "function", "function": {"name": "clock"}}
    called = create(model="llm", messages=CHAT, tools=[CLOCK], tool_choice=named).choices[0].message
    told = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "12:30"}
    answer = create(model="llm", messages=[*CHAT, called, told], tools=[CLOCK], max_tokens=60)
    assert answer.choices[0].message.content or answer.choices[0].message.tool_calls
    assert answer.usage.prompt_tokens > 40  # the functions are told to the model


def test_free_text_stays_free_beside_tools_it_may_call(client: openai.OpenAI) -> None:
    create = client.chat.completions.create
    free = create(model="llm", messages=CHAT, tools=[WEATHER], tool_choice="none", max_tokens=60)
    assert free.choices[0].message.content.startswith("Lambda expressions")
    assert free.choices[0].message.tool_calls is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string", "pattern": "("}, "pattern is not supported"),
        ({"type": "nothing"}, "type is 'nothing'"),
        ({"$ref": "#/$defs/x"}, "no such place"),
        ({"type": "object", "properties": {f"p{i}": {} for i in range(300)}}, "more than 200 schemas"),
    ],
)
def test_a_schema_that_cannot_be_kept_fails_alone(
    server: TritonServer, client: openai.OpenAI, schema: object, problem: str
) -> None:
    create = client.chat.completions.create
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(create, model="llm", messages=CHAT, max_tokens=60) for _ in range(4)]
        with pytest.raises(openai.BadRequestError, match="response_format") as caught:
            create(model="llm", messages=CHAT, response_format=form)
        assert problem in str(caught.value)
        assert caught.value.param == "response_format"
        texts = {one.result().choices[0].message.content for one in others}
    assert len(texts) == 1
    wait_until(lambda: metric(server, "active_requests") == 0, "no active request")


async def test_the_typed_client_asks_for_a_form(server: TritonServer) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "array", "items": {"enum": [1, 2]}}}}
    async with Client(server.grpc_url) as client:
        answer = await client.complete(messages=CHAT, response_format=form, max_tokens=200, temperature=1)
        if answer.finish_reason == "stop":
            assert set(json.loads(answer.text)) <= {1, 2}
        with pytest.raises(InvalidArgument, match="stop is given beside response_format"):
            await client.complete(messages=CHAT, response_format=form, stop="]")
        with pytest.raises(InvalidArgument, match="tools needs messages"):
            await client.complete("hi", tools=[WEATHER])


def test_equal_prompts_of_other_forms_are_not_shared(client: openai.OpenAI) -> None:
    """With `coalesce` equal requests share one generation: these are not equal."""
    create = client.chat.completions.create
    forms = [{"type": "text"}, {"type": "json_object"}, {"type": "text"}, {"type": "json_object"}]
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(create, model="llm", messages=CHAT, response_format=form, max_tokens=40)
            for form in forms
        ]
        first = [one.result().choices[0].message.content[0] for one in asked]
    assert [letter == "{" for letter in first] == [False, True, False, True]
