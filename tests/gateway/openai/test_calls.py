"""Calls of functions, read out of an answer's text however it is cut into deltas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimodal.gateway.openai.calls import CallReader, read_calls
from trimodal.llm.structured.call_text import CALL_TAIL, call_head

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
    assert read_calls(text) == message


def test_a_call_that_was_cut_has_the_arguments_so_far() -> None:
    message = read_calls(call_head("f") + '{"a": "}')
    (call,) = message["tool_calls"]
    assert message["content"] is None
    assert call["function"] == {"name": "f", "arguments": '{"a": "}'}
