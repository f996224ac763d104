"""Messages with calls of functions and what they returned, good and bad; others are in test_request.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimodal.errors import InvalidArgument
from trimodal.llm.request.messages import read_messages


def call(arguments: Any = '{"a": 1}', name: Any = "f", **more: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def said(calls: Any, **more: Any) -> str:
    return json.dumps([{"role": "assistant", "tool_calls": calls, **more}])


def test_calls_come_with_their_arguments_as_an_object() -> None:
    chat = [
        {"role": "assistant", "content": None, "tool_calls": [call()]},
        {"role": "tool", "content": "12", "tool_call_id": "call_1"},
    ]
    called, told = read_messages(json.dumps(chat)) or ()
    assert called["content"] == ""
    assert called["tool_calls"] == [call({"a": 1})]
    assert told == chat[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (said([]), "content must be a string"),
        (said([], content=""), r"tool_calls must be a list of calls that is not empty"),
        (said("x"), "tool_calls must be a list"),
        (said([1]), r"tool_calls\[0\] must be"),
        (said([{"function": 1}]), r"tool_calls\[0\] must be"),
        (said([call(name="a b")]), r"tool_calls\[0\].function.name is 'a b'"),
        (said([call(name=None)]), r"tool_calls\[0\].function.name is None"),
        (said([call({})]), r"arguments must be a string"),
        (said([call("[]")]), "arguments must be the text of a JSON object"),
        (said([call("{")]), "arguments is not valid JSON"),
        (said([call("[" * 5000)]), "arguments is nested too deeply"),
        (said([call('{"a": "\\\\ud800"}'.replace("\\\\", "\\"))]), "lone surrogate"),
        (json.dumps([{"role": "user", "content": "a", "tool_calls": [call()]}]), "unknown key 'tool_calls'"),
        (json.dumps([{"role": "user", "content": "a", "tool_call_id": "x"}]), "unknown key 'tool_call_id'"),
        (json.dumps([{"role": "tool", "content": "a", "tool_call_id": 3}]), "tool_call_id must be a string"),
        (json.dumps([{"role": ["a"], "content": "a"}]), r"role is \['a'\]"),
    ],
)
def test_a_bad_call_is_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_messages(text)
