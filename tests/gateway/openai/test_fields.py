"""The rule for fields: null is not given, the unknown is ignored and named, the impossible is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import ANSWER, CHAT, LIMIT_S, Serve, fails, fake_triton
from tests.gateway.test_metrics import read
from trimodal.errors import InvalidArgument
from trimodal.gateway.openai import fields
from trimodal.gateway.openai.fields import ignored_header, unheld
from trimodal.llm.structured.reading import MAX_BYTES

PATHS = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/embeddings"}
TEXT = {"model": "llm", "prompt": "hi"}
VECTOR = {"model": "embedding", "input": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LOOK_AHEAD = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
TOOL_ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "7"}


def post(url: str, change: dict[str, Any], base: dict[str, Any] | None = None) -> httpx.Response:
    body = {**(base or {"model": "llm", "messages": CHAT}), **change}
    path = next(path for field, path in PATHS.items() if field in body)
    return httpx.post(f"{url}{path}", json=body, timeout=LIMIT_S)


def talk(*messages: object) -> dict[str, Any]:
    return {"messages": [*messages, *CHAT]}


def said(**fields: object) -> dict[str, Any]:
    """A talk in which the assistant's message has these fields."""
    return talk({"role": "assistant", **fields})


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def part(**fields: object) -> dict[str, Any]:
    """A talk with a part of text that has these fields."""
    return talk({"role": "user", "content": [{"type": "text", "text": "a", **fields}]})


NULLS: list[tuple[dict[str, Any] | None, str]] = [
    (
        None,
        "n stream functions function_call reasoning_effort verbosity prediction audio web_search_options "
        "tools tool_choice parallel_tool_calls logit_bias store stop response_format seed modalities "
        "metadata stream_options max_tokens top_k",
    ),
    (TEXT, "n stream echo best_of suffix logprobs user"),
    (VECTOR, "encoding_format dimensions user"),
]


@pytest.mark.parametrize("base", [one for one, _ in NULLS], ids=["chat", "completions", "embeddings"])
def test_null_is_not_given(serve: Serve, base: dict[str, Any] | None) -> None:
    served = serve()
    (fields,) = (names for one, names in NULLS if one is base)
    answer = post(served.url, dict.fromkeys(fields.split()), base)
    assert answer.status_code == 200, answer.text
    assert "x-ignored-fields" not in answer.headers
    plain = post(served.url, {}, base)
    with_nulls, without = served.triton.requests
    assert {name: value.tolist() for name, value in with_nulls.inputs.items()} == {
        name: value.tolist() for name, value in without.inputs.items()
    }
    assert plain.status_code == 200


@pytest.mark.parametrize(
    ("change", "ignored"),
    [
        ({"max_token": 3}, "max_token"),
        ({"tenant": "1", "tier": "premium", "priority": -5}, "priority, tenant, tier"),
        ({"user": "me", "store": True, "metadata": {"a": "b"}}, "metadata, store, user"),
        ({"verbosity": "low", "prediction": {"type": "content", "content": "a"}}, "prediction, verbosity"),
        (said(content="a", reasoning_content="b"), "messages[].reasoning_content"),
        (
            said(content="a", id="msg_1", provider_specific_fields={"x": 1}),
            "messages[].id, messages[].provider_specific_fields",
        ),
        (part(cache_control={"type": "ephemeral"}), "messages[].content[].cache_control"),
        (
            talk({"role": "assistant", "tool_calls": [{**CALL, "index": 0}]}, TOOL_ANSWER),
            "messages[].tool_calls[].index",
        ),
        ({"stream_options": {"more": 1}, "stream": True}, "stream_options.more"),
        # What no answer is held to.
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": LOOK_AHEAD}}]},
            "tools[0].function.parameters.properties.a.pattern",
        ),
        (form(LOOK_AHEAD), "response_format.properties.a.pattern"),
        ({**form({"not": {}}), "stream": True}, "response_format.not"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_known_is_ignored_and_named(serve: Serve, change: dict[str, Any], ignored: str) -> None:
    answer = post(serve().url, change)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ignored-fields"] == ignored


def test_ignored_fields_are_counted_and_do_not_reach_the_model(serve: Serve) -> None:
    served = serve()
    function = {"name": "f", "parameters": {"type": "object"}}
    name = ("ignored_fields_total", "/v1/chat/completions")
    before = read(served.url).get(name, 0)
    post(served.url, {"tools": [{"type": "function", "function": {**function, "x": 1}, "y": 2}], "z": 3})
    assert read(served.url)[name] == before + 3
    (request,) = served.triton.requests
    sent = request.inputs["tools"][0].decode()
    assert '"x"' not in sent
    assert '"y"' not in sent


@pytest.mark.parametrize(
    "change",
    [
        {"tools": []},
        {"tool_choice": "auto"},
        {"parallel_tool_calls": True},
        {"functions": [], "function_call": "auto"},
        {"modalities": ["text"]},
        {"use_beam_search": False, "skip_special_tokens": True, "bad_words": []},
        {"logit_bias": {}},
        said(content=None, refusal="No."),
        said(content=[{"type": "refusal", "refusal": "No."}]),
    ],
    ids=str,
)
def test_what_asks_for_nothing_is_taken(serve: Serve, change: dict[str, Any]) -> None:
    answer = post(serve().url, change)
    assert answer.status_code == 200, answer.text
    assert "x-ignored-fields" not in answer.headers
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"bad_words": ["a"]}, "bad_words"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        (said(audio={"id": "a"}), "messages[0].audio"),
        (said(function_call={"name": "f", "arguments": "{}"}), "messages[0].function_call"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_change_the_answer_is_refused(serve: Serve, change: dict[str, Any], field: str) -> None:
    served = serve()
    answer = post(served.url, change)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")
    assert served.triton.requests == []


def test_a_refusal_of_the_assistant_is_part_of_the_talk(serve: Serve) -> None:
    served = serve()
    post(served.url, said(content=[{"type": "refusal", "refusal": "No."}]))
    (request,) = served.triton.requests
    assert b'"content": "No."' in request.inputs["messages"][0]


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        ({"temperature": "0.00"}, "temperature", 0.0),
        ({"temperature": "0.5"}, "temperature", 0.5),
        ({"max_tokens": 5.0}, "max_tokens", 5),
        ({"max_tokens": "7"}, "max_tokens", 7),
        ({"seed": 3.0}, "seed", 3),
        ({"top_k": -1}, "top_k", -1),
        ({"top_p": 1}, "top_p", 1.0),
    ],
    ids=str,
)
def test_numbers_in_other_forms(serve: Serve, change: dict[str, Any], name: str, value: float) -> None:
    served = serve()
    assert post(served.url, change).status_code == 200
    (request,) = served.triton.requests
    assert request.inputs[name].tolist() == [value]


@pytest.mark.parametrize(
    "kind", [None, "application/x-www-form-urlencoded", "text/plain; charset=utf-8", "image/png"]
)
def test_json_by_any_content_type(serve: Serve, kind: str | None) -> None:
    content = b'{"model": "llm", "messages": [{"role": "user", "content": "hi"}]}'
    headers = {"content-type": kind} if kind else {}
    with httpx.Client(timeout=LIMIT_S) as client:
        url = f"{serve().url}/v1/chat/completions"
        request = client.build_request("POST", url, content=content, headers=headers)
        assert request.headers.get("content-type") == kind
        assert client.send(request).status_code == 200


def test_the_header_is_short_and_holds_plain_names_only() -> None:
    assert ignored_header([]) == ""
    assert ignored_header(["a", "b\r\nx: y", "é"]) == "a, and 2 more"
    told = ignored_header(f"field_{number}" for number in range(5000))
    assert told.endswith(", and 4968 more")
    assert len(told) < 500


def test_schemas_that_the_model_refuses_for_their_size_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(fields, "read_tools", read)
    big = "x" * MAX_BYTES
    tool = {"type": "function", "function": {"name": "f", "description": big}}
    schema = {"type": "json_schema", "json_schema": {"name": "s", "description": big, "schema": {}}}
    assert asyncio.run(unheld({"tools": [tool]})) == ()
    assert asyncio.run(unheld({"response_format": schema})) == ()


NINE, FIVE = "max_tokens is 9: 1 to 8 are taken", "top_logprobs is 5: engine 'openvino' tells 0 at most"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "asked", "said", "field"),
    [
        ("chat/completions", {"messages": CHAT, "max_tokens": 9}, NINE, "max_tokens"),
        ("chat/completions", {"messages": CHAT, "max_completion_tokens": 9}, NINE, "max_completion_tokens"),
        ("chat/completions", {"messages": CHAT, "logprobs": True, "top_logprobs": 5}, FIVE, "top_logprobs"),
        ("completions", {"prompt": "a", "logprobs": 5}, FIVE, "logprobs"),
        ("completions", {"prompt": ""}, "text_input is empty: a text is needed", "prompt"),
        ("completions", {"prompt": [9]}, "prompt_token_ids has token 9: 0 to 8 are known", "prompt"),
        ("responses", {"input": "a"}, NINE, "max_output_tokens"),
        ("responses", {"input": "a"}, "messages holds 1025 entries: at most 1024 are taken", "input"),
        ("responses", {"input": "a"}, "response_format.properties.a: what", "text.format.properties.a"),
        ("responses", {"input": "a"}, "tools[1].function.parameters: what", "tools[1].parameters"),
        ("responses", {"input": "a"}, "top_p is 2: 0 to 1 is taken", "top_p"),
    ],
)
def test_refusals_of_the_model_name_the_fields_of_the_endpoint(
    serve: Serve, path: str, asked: dict[str, Any], said: str, field: str, stream: bool
) -> None:
    url = serve(fake_triton(llm=fails(InvalidArgument(said)))).url
    answer = httpx.post(f"{url}/v1/{path}", json={"model": "llm", "stream": stream, **asked})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert error["message"].startswith(field)
    assert error["message"].endswith(said.partition(": ")[2])
