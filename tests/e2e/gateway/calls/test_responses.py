"""Responses: with tools, schemas and pictures, and talks that the gateway keeps."""

from __future__ import annotations

import base64
import json

import jsonschema
import openai
import pytest

from tests.e2e.gateway.calls.starter import GREECE, SAMPLES, Starter
from tests.e2e.gateway.calls.starter import JAPAN as CHAT

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

JAPAN = CHAT[0]["content"]
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "weather", "parameters": PLACE, "strict": True}


def test_a_response(starter: Starter) -> None:
    answer = starter.client.responses.create(model="llm", input=JAPAN)
    assert answer.status == "completed"
    assert "Tokyo" in answer.output_text
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0


def test_a_response_streamed(starter: Starter) -> None:
    events = list(starter.client.responses.create(model="llm", input=JAPAN, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    assert "Tokyo" in text


def test_a_loop_of_tools(starter: Starter) -> None:
    create = starter.client.responses.create
    asked = {"model": "llm", "tools": [WEATHER], "max_output_tokens": 200}
    called = create(input="Is it warm in Paris?", tool_choice="required", **asked)
    (call, *more) = called.output
    assert {one.type for one in called.output} == {"function_call"}
    jsonschema.validate(json.loads(call.arguments), PLACE)
    told = [
        {"type": "function_call_output", "call_id": one.call_id, "output": "It is sunny, 31 degrees."}
        for one in (call, *more)
    ]
    answer = create(input=told, previous_response_id=called.id, tool_choice="none", **asked)
    assert answer.output_text.strip()


def test_a_talk_that_the_gateway_keeps(starter: Starter) -> None:
    responses = starter.client.responses
    first = responses.create(model="llm", input=JAPAN)
    *_, last = responses.create(model="llm", input=GREECE, previous_response_id=first.id, stream=True)
    assert "Athens" in last.response.output_text
    assert last.response.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert responses.retrieve(first.id).output_text == first.output_text
    responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve(first.id)


def test_a_picture_and_a_question_after_it(starter: Starter) -> None:
    picture = base64.b64encode((SAMPLES / "photos" / "koala.jpg").read_bytes()).decode()
    content = [
        {"type": "input_text", "text": "What is in the picture?"},
        {"type": "input_image", "image_url": f"data:image/jpeg;base64,{picture}", "detail": "auto"},
    ]
    create = starter.client.responses.create
    first = create(model="llm", input=[{"role": "user", "content": content}], max_output_tokens=40)
    assert "koala" in first.output_text.lower()
    again = create(
        model="llm", input="Which animal is it?", previous_response_id=first.id, max_output_tokens=40
    )
    assert "koala" in again.output_text.lower()


def test_a_talk_beyond_the_models_room_goes_on(starter: Starter) -> None:
    turns = [pair for n in range(400) for pair in (("user", f"Say {n}."), ("assistant", f"{n}. " * 30))]
    talk = [{"role": role, "content": text} for role, text in turns]
    question = {"role": "user", "content": JAPAN}
    asked = {"model": "llm", "input": [*talk, question], "max_output_tokens": 6_500}
    with pytest.raises(openai.BadRequestError) as told:
        starter.client.responses.create(**asked)
    assert told.value.code == "context_length_exceeded"
    first_sentence = {"stop": ["."]}  # the answer that is asked for leaves less to be computed
    answer = starter.client.responses.create(**asked, truncation="auto", extra_body=first_sentence)
    assert answer.output_text
    assert 1_000 < answer.usage.input_tokens <= 8_192 - 6_500, "as much of it as there is room for"
    assert answer.trimodal["trimmed"]["messages"] > 400
