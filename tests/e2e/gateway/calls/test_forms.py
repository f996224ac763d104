"""Answers that are held to a form: pydantic, JSON, schemas, calls of functions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.gateway.calls.starter import JAPAN, Starter

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]


class Topic(BaseModel):
    kind: Literal["statement", "function", "type"]
    pages: int
    builtin: bool


PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells the weather.", "parameters": PLACE},
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "weather"}}
# Sampled: a small model, greedy, writes the same word until the tokens are spent.
ASKED: dict[str, Any] = {"model": "llm", "messages": JAPAN, "temperature": 1, "seed": 3, "max_tokens": 120}


def calls_of(answer: openai.types.chat.ChatCompletion) -> list[tuple[str, Any]]:
    """The functions that are called, and their arguments, which are valid."""
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    found = []
    for one in choice.message.tool_calls:
        assert one.id.startswith("call_")
        arguments = json.loads(one.function.arguments)
        jsonschema.validate(arguments, PLACE if one.function.name == "weather" else {"maxProperties": 0})
        found.append((one.function.name, arguments))
    return found


def test_pydantic_whole(starter: Starter) -> None:
    answer = starter.client.chat.completions.parse(
        model="llm", messages=JAPAN, response_format=Topic, max_tokens=100
    )
    assert isinstance(answer.choices[0].message.parsed, Topic)
    assert answer.choices[0].finish_reason == "stop"


def test_pydantic_streamed(starter: Starter) -> None:
    asked = {"model": "llm", "messages": JAPAN, "response_format": Topic}
    with starter.client.chat.completions.stream(**asked) as stream:
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Topic)


def test_any_json_object(starter: Starter) -> None:
    """A small model seldom ends such an object by itself: one that is cut only begins right; {} is one."""
    for seed in range(4):
        asked = {**ASKED, "seed": seed, "response_format": {"type": "json_object"}}
        (choice,) = starter.client.chat.completions.create(**asked).choices
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)


def test_a_call_is_required(starter: Starter) -> None:
    answer = starter.client.chat.completions.create(**ASKED, tools=[CLOCK, WEATHER], tool_choice="required")
    calls_of(answer)
    assert answer.choices[0].message.content is None


def test_a_named_call_streamed(starter: Starter) -> None:
    asked = {**ASKED, "tools": [CLOCK, WEATHER], "tool_choice": NAMED}
    with starter.client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    ((name, arguments),) = calls_of(answer)
    assert name == "weather"


def test_one_call_and_no_other(starter: Starter) -> None:
    asked = {**ASKED, "tools": [CLOCK], "tool_choice": "required", "parallel_tool_calls": False}
    for seed in range(4):
        assert calls_of(starter.client.chat.completions.create(**{**asked, "seed": seed})) == [("clock", {})]


def test_calls_side_by_side(starter: Starter) -> None:
    asked = {**ASKED, "tools": [CLOCK], "tool_choice": "required", "temperature": 2, "max_tokens": 400}
    counts = [len(calls_of(starter.client.chat.completions.create(**{**asked, "seed": n}))) for n in range(8)]
    assert 1 < max(counts) <= 8


def test_tools_that_may_not_be_called(starter: Starter) -> None:
    answer = starter.client.chat.completions.create(
        model="llm", messages=JAPAN, tools=[WEATHER], tool_choice="none"
    )
    assert "Tokyo" in answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_a_talk_with_a_tools_result(starter: Starter) -> None:
    create = starter.client.chat.completions.create
    named = {"type": "function", "function": {"name": "clock"}}
    called = create(model="llm", messages=JAPAN, tools=[CLOCK], tool_choice=named).choices[0].message
    result = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "12:30"}
    answer = create(model="llm", messages=[*JAPAN, called, result], tools=[CLOCK], max_tokens=60)
    assert answer.choices[0].message.content or answer.choices[0].message.tool_calls
    assert answer.usage.prompt_tokens > 40, "the functions are told to the model"


def test_a_schema_that_cannot_be_kept_fails_alone(starter: Starter) -> None:
    schema = {"type": "string", "pattern": "("}
    create = starter.client.chat.completions.create
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(create, model="llm", messages=JAPAN, max_tokens=60) for _ in range(4)]
        with pytest.raises(openai.BadRequestError, match="response_format") as caught:
            create(model="llm", messages=JAPAN, response_format=form)
        assert "pattern" in str(caught.value)
        assert caught.value.param == "response_format"
        texts = {one.result().choices[0].message.content for one in others}
    assert len(texts) == 1
