"""Events whose fields are wrong: each names its field, and changes nothing of its session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.conftest import Serve
from tests.gateway.realtime.conftest import Dial, Event, transcription
from tests.gateway.realtime.openai.test_conversation import item
from tests.gateway.realtime.openai.test_pictures import part, url
from trimodal.gateway.realtime.openai.config import TENTATIVE

CREATE, UNSUPPORTED, NOT_FOUND = "conversation.item.create", "unsupported_parameter", "item_not_found"
TALK, HEARD = "model=llm", "intent=transcription"
IMAGE = {"type": "input_image"}
CALL = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
Row = tuple[str, str, Event, str, str | None]
"""Query of the session, the event's type and fields, the field that is named, and the error's code."""


def items() -> Iterator[Row]:
    rows: list[tuple[Event, str, str | None]] = [
        ({}, "item", None),
        ({"item": {"type": "mcp_call"}}, "item.type", UNSUPPORTED),
        ({"item": {"type": {"a": 1}}}, "item.type", UNSUPPORTED),
        ({"item": item("x", role="tool")}, "item.role", None),
        ({"item": item("x", id=7)}, "item.id", None),
        ({"item": item("x", content=[])}, "item.content", None),
        ({"item": item("x", content=[{"type": "input_audio"}])}, "item.content[0].type", UNSUPPORTED),
        ({"item": item("x", content=[{"type": "input_text"}])}, "item.content[0].text", None),
        ({"item": item("x" * 70_000)}, "item.content", None),
        ({"item": item("half \ud83d of an emoji")}, "item.content[0].text", None),
        ({"item": item("x"), "previous_item_id": "no"}, "previous_item_id", NOT_FOUND),
        ({"item": {**CALL, "name": "get weather"}}, "item.name", None),
        ({"item": {**CALL, "arguments": ""}}, "item.arguments", None),
        ({"item": {**CALL, "arguments": '{"city": "Pa'}}, "item.arguments", None),
        ({"item": {**CALL, "arguments": "[]"}}, "item.arguments", None),
    ]
    for fields, param, code in rows:
        yield TALK, CREATE, fields, param, code
    pictures: list[tuple[list[Event], str]] = [
        ([IMAGE], "[0].image_url"),
        ([{**IMAGE, "image_url": 7}], "[0].image_url"),
        ([{**IMAGE, "image_url": {"url": url()}}], "[0].image_url"),
        ([{**IMAGE, "image_url": "http://a/b.png"}], "[0].image_url"),
        ([{**IMAGE, "image_url": "data:image/png;base64,*"}], "[0].image_url"),
        ([{**IMAGE, "image_url": url(b"")}], "[0].image_url"),
        ([{**part(), "detail": "best"}], "[0].detail"),
        ([{**part(), "detail": []}], "[0].detail"),
        ([part(), part()], "[1]"),
    ]
    for content, place in pictures:
        yield TALK, CREATE, {"item": item("", content=content)}, f"item.content{place}", None
    for role in ("system", "assistant"):
        picture = item("", role=role, content=[part()])
        yield TALK, CREATE, {"item": picture}, "item.content[0].type", UNSUPPORTED


def others() -> Iterator[Row]:
    yield TALK, "conversation.item.delete", {"item_id": "no"}, "item_id", NOT_FOUND
    yield TALK, "conversation.item.retrieve", {}, "item_id", NOT_FOUND
    yield TALK, "conversation.item.truncate", {}, "type", "unknown_event"
    yield TALK, "response.create", {"response": 7}, "response", None
    audio = {"output_modalities": ["audio"]}
    yield TALK, "response.create", {"response": audio}, "response.output_modalities", UNSUPPORTED
    yield TALK, "response.create", {"response": {"tools": [{}]}}, "response.tools[0].name", None
    yield TALK, "response.create", {"response": {"max_output_tokens": 0}}, "response.max_output_tokens", None
    talks: list[tuple[Event, str, str | None]] = [
        ({"tools": [{"type": "function"}]}, "tools[0].name", None),
        ({"tools": [{"type": "mcp", "name": "x"}]}, "tools[0].type", None),
        ({"tools": [{"name": "a b"}]}, "tools[0].name", None),
        ({"tools": [{"name": "a"}] * 65}, "tools", None),
        ({"tools": [{"name": "a"}] * 2}, "tools", None),
        ({"tools": [{"name": "a"}], "tool_choice": {"type": "function", "name": "b"}}, "tool_choice", None),
        *(({"max_output_tokens": limit}, "max_output_tokens", None) for limit in (0, 1 << 31, True)),
        ({"output_modalities": ["audio"]}, "output_modalities", UNSUPPORTED),
        ({"audio": {"output": {"voice": "marin"}}}, "audio.output", UNSUPPORTED),
        ({"model": "gpt-realtime"}, "model", "model_not_found"),
    ]
    for fields, param, code in talks:
        session = {"type": "realtime", **fields}
        yield TALK, "session.update", {"session": session}, f"session.{param}", code


def settings() -> Iterator[Row]:
    whole: list[tuple[object, str, str | None]] = [
        (None, "session", None),
        ({}, "session.type", "missing_required_parameter"),
        ({"type": "translation"}, "session.type", "invalid_value"),
        ({"type": "transcription", "typo": 1}, "session.typo", "unknown_parameter"),
    ]
    for session, param, code in whole:
        yield HEARD, "session.update", {"session": session}, param, code
    inputs: list[tuple[Event, str, str | None]] = [
        ({"format": {"rate": 44_100}}, "format.rate", None),
        ({"format": {"type": "audio/mp3"}}, "format.type", None),
        ({"format": 7}, "format", None),
        ({"transcription": {"model": "whisper-9"}}, "transcription.model", "model_not_found"),
        ({"transcription": {"keywords": ["x" * 601]}}, "transcription.keywords", None),
        ({"transcription": {"prompt": "x" * 1_001}}, "transcription.prompt", None),
        ({"transcription": {"keywords": ["\ud83d"]}}, "transcription.keywords[0]", None),
        ({"transcription": {"delay": "none"}}, "transcription.delay", None),
        ({"transcription": {"language": "xx"}}, "transcription.language", None),
        ({"transcription": {"languages": ["en"]}}, "transcription.languages", UNSUPPORTED),
        ({"noise_reduction": {"type": "near_field"}}, "noise_reduction", UNSUPPORTED),
        ({"turn_detection": {"type": "loud_vad"}}, "turn_detection", None),
        ({"turn_detection": {"type": "server_vad", "silence_duration_ms": 1}},
         "turn_detection.silence_duration_ms", None),
    ]  # fmt: skip
    for fields, param, code in inputs:
        place = f"session.audio.input.{param}"
        yield HEARD, "session.update", {"session": transcription(**fields)}, place, code
    logprobs = ["item.input_audio_transcription.logprobs"]
    for include in (logprobs, 7, "x", {}, [7], [TENTATIVE, TENTATIVE], [TENTATIVE, "other"]):
        session = {"type": "transcription", "include": include}
        yield HEARD, "session.update", {"session": session}, "session.include", UNSUPPORTED


@pytest.mark.parametrize(("query", "kind", "fields", "param", "code"), [*items(), *others(), *settings()])
def test_it_names_its_field_and_changes_nothing(
    serve: Serve, dial: Dial, query: str, kind: str, fields: Event, param: str, code: str | None
) -> None:
    running = serve()
    peer = dial(running, query)
    created = peer.receive()["session"]
    peer.send(kind, **fields, event_id="mine")
    error = peer.receive()["error"]
    assert (error["param"], error["code"], error["event_id"]) == (param, code, "mine")
    peer.send("session.update", session={"type": created["type"], "include": None})
    assert peer.until("session.updated")["session"] == created
    if query == TALK:
        peer.send(CREATE, item=item("still open"))
        peer.send("response.create")
        assert peer.until("response.done")["response"]["status"] == "completed"
    assert [one.model for one in running.triton.requests] == (["llm"] if query == TALK else [])
