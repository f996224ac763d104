"""Calls of functions, read out of an answer's text however it is cut into deltas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.llm.structured.sentences import Sentences
from trimodal.gateway.openai.calls import CallReader, read_calls
from trimodal.llm.structured.call_text import CALL_TAIL, call_head
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.tools import read_tools

ARGUMENTS = st.dictionaries(
    st.text(max_size=8),
    st.recursive(st.text() | st.integers() | st.none(), lambda one: st.lists(one), max_leaves=4),
)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "get-weather_2"]), ARGUMENTS), max_size=3)
TEXTS = st.text(st.sampled_from('a <tool_cal>\n{"é😀'), max_size=30).filter(
    lambda text: "<tool_call>" not in text
)


def written(text: str, calls: list[tuple[str, dict[str, Any]]]) -> str:
    return text + "\n".join(
        call_head(name) + json.dumps(values, ensure_ascii=False) + CALL_TAIL for name, values in calls
    )


def merged(parts: list[dict[str, Any]]) -> tuple[str, list[tuple[str, str]]]:
    content, calls = "", []
    for part in parts:
        content += part.get("content", "")
        for call in part.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append((call["function"]["name"], ""))
            else:
                name, before = calls[call["index"]]
                calls[call["index"]] = (name, before + call["function"]["arguments"])
    return content, calls


@given(TEXTS, CALLS, st.data())
def test_it_reads_what_was_written(text: str, calls: list[tuple[str, Any]], data: st.DataObject) -> None:
    whole = written(text, calls)
    reader, parts, at = CallReader(), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, 12))
        parts += reader.read(whole[at : at + size])
        at += size
    content, read = merged(parts + reader.read("", last=True))
    if not text.endswith("<"):  # before a call it could be taken for the call's own
        assert content == text
    assert [(name, json.loads(arguments)) for name, arguments in read] == calls
    assert reader.calls == len(calls)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no call", {"content": "no call"}),
        ("", {"content": ""}),
        ("a < b <tool", {"content": "a < b <tool"}),
        ("<tool_call>\nbroken", {"content": "<tool_call>\nbroken"}),
    ],
)
def test_a_text_without_a_call_stays_a_text(text: str, message: dict[str, Any]) -> None:
    assert read_calls(CallReader(), text) == message


def test_a_call_that_was_cut_has_the_arguments_so_far() -> None:
    message = read_calls(CallReader(), call_head("f") + '{"a": "}')
    (call,) = message["tool_calls"]
    assert message["content"] is None
    assert call["function"] == {"name": "f", "arguments": '{"a": "}'}


NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}}
FUNCTIONS = {
    "none": None,
    "empty": {},
    "strict": {
        "type": "object", "properties": {"city": {"type": ["string", "null"]}}, "required": ["city"],
        "additionalProperties": False,
    },
    "optional": {"properties": {"a": {"type": "integer"}, "b": {"enum": ["}", '"', "</tool_call>"]}}},
    "recursive": {"$ref": "#/$defs/n", "$defs": {"n": NODE}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "parallel", "fewest", "most"),
    [
        ("auto", None, 0, 8), ("auto", False, 0, 1), ("required", True, 1, 8), ("required", False, 1, 1),
        ('{"type": "function", "function": {"name": "optional"}}', None, 1, 1),
    ],
)  # fmt: skip
def test_what_the_grammar_lets_a_model_write_is_read_as_calls(
    choice: str, parallel: bool | None, fewest: int, most: int
) -> None:
    described = [
        {"type": "function", "function": {"name": name, **({} if one is None else {"parameters": one})}}
        for name, one in FUNCTIONS.items()
    ]
    form = read_form(None, read_tools(json.dumps(described), choice, parallel), 1 << 15)
    named, made = set(), Sentences(form.grammar)
    for seed in range(60):
        message = read_calls(CallReader(), made.draw(seed))
        calls = message.get("tool_calls", [])
        assert fewest <= len(calls) <= most
        assert len({call["id"] for call in calls}) == len(calls)
        for call in calls:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            Draft202012Validator(FUNCTIONS[name] or {"type": "object"}).validate(arguments)
            named.add(name)
    assert named == ({"optional"} if "optional" in choice else set(FUNCTIONS))


def test_what_begins_like_a_call_and_is_none_is_text_before_its_end() -> None:
    reader, told = CallReader(), ""
    for _ in range(20):
        told += "".join(part["content"] for part in reader.read("<tool_call>" + " " * 100))
    assert len(told) > 20 * 111 - 600, "little is held back, so little is read again with each piece"


@pytest.mark.parametrize("arguments", ['"text"', "5", "}", "[{}]"])
def test_arguments_that_are_no_object_are_no_call_and_leave_the_next_one_alone(arguments: str) -> None:
    call = '<tool_call>{"name": "b", "arguments":  {"x": "}"}}</tool_call>'
    told = read_calls(
        CallReader(), f'<tool_call>{{"name": "a", "arguments": {arguments}}}</tool_call>\n' * 10 + call
    )
    assert [one["function"] for one in told["tool_calls"]] == [{"name": "b", "arguments": '{"x": "}"}'}]
    assert arguments in told["content"]
