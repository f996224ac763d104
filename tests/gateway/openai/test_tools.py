"""response_format and tools: what is sent to Triton, and what OpenAI's package makes of the answers."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.gateway.conftest import CHAT, Serve, fake_triton
from trimodal.client.transports.fake import scripted

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b c"}}\n</tool_call>'
NAMED = {"type": "function", "function": {"name": "f"}}


class Thing(BaseModel):
    size: int


def test_a_form_is_sent_to_the_model_and_parsed(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted('{"size": 3}')))
    parse = served.openai().chat.completions.parse
    assert parse(model="llm", messages=CHAT, response_format=Thing).choices[0].message.parsed == Thing(size=3)
    (request,) = served.triton.requests
    sent = json.loads(request.inputs["response_format"][0])
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["properties"]["size"]["type"] == "integer"


def test_a_text_is_continued_in_a_form(serve: Serve) -> None:
    served = serve()
    form = {"response_format": {"type": "json_object"}}
    served.openai().completions.create(model="llm", prompt="a", extra_body=form)
    (request,) = served.triton.requests
    assert json.loads(request.inputs["response_format"][0]) == {"type": "json_object"}


def test_text_asks_for_nothing(serve: Serve) -> None:
    served = serve()
    served.chat(response_format={"type": "text"})
    (request,) = served.triton.requests
    assert set(request.inputs) == {"messages"}


@pytest.mark.parametrize("choice", ["auto", "required", NAMED])
@pytest.mark.parametrize("stream", [False, True])
def test_calls_whole_and_streamed(serve: Serve, stream: bool, choice: object) -> None:
    served = serve(fake_triton(llm=scripted(f"Wait.\n{CALL}\n{CALL}")))
    asked = {
        "model": "llm",
        "messages": CHAT,
        "tools": [TOOL],
        "tool_choice": choice,
        "parallel_tool_calls": True,
    }
    completions = served.openai().chat.completions
    if stream:
        with completions.stream(**asked) as events:
            answer = events.get_final_completion()
    else:
        answer = completions.create(**asked)
    (chosen,) = answer.choices
    calls = chosen.message.tool_calls
    assert (chosen.finish_reason, chosen.message.content) == ("tool_calls", "Wait.\n")
    assert [(call.function.name, call.function.arguments) for call in calls] == [("f", '{"a": "b c"}')] * 2
    assert len({call.id for call in calls}) == 2
    (request,) = served.triton.requests
    assert json.loads(request.inputs["tools"][0]) == [TOOL]
    sent = request.inputs["tool_choice"][0].decode()
    assert (json.loads(sent) if isinstance(choice, dict) else sent) == choice
    assert request.inputs["parallel_tool_calls"].tolist() == [True]


def test_a_call_that_a_text_of_stop_cuts_is_no_reason_to_call(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(CALL[: CALL.index(" c")])))
    asked: dict[str, Any] = {"model": "llm", "messages": CHAT, "tools": [TOOL], "stop": " c"}
    (whole,) = served.openai().chat.completions.create(**asked).choices
    assert (whole.finish_reason, whole.message.tool_calls[0].function.arguments) == ("stop", '{"a": "b')
    *_, last = served.openai().chat.completions.create(**asked, stream=True)
    assert last.choices[0].finish_reason == "stop"


def test_of_allowed_tools_only_these_are_sent(serve: Serve) -> None:
    served = serve()
    other = {"type": "function", "function": {"name": "g"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
    served.openai().chat.completions.create(
        model="llm", messages=CHAT, tools=[other, TOOL], tool_choice=choice
    )
    (request,) = served.triton.requests
    assert [tool["function"]["name"] for tool in json.loads(request.inputs["tools"][0])] == ["f"]
    assert request.inputs["tool_choice"][0].decode() == "required"
    with pytest.raises(openai.BadRequestError, match="its tools are none of those that are given"):
        served.openai().chat.completions.create(model="llm", messages=CHAT, tools=[other], tool_choice=choice)


def test_without_tools_a_call_is_a_text(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(CALL)))
    for more in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        answer = served.chat(**more)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (CALL, "stop")


def test_a_talk_with_calls_is_sent_whole(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(CALL)))
    create = served.openai().chat.completions.create
    called = create(model="llm", messages=CHAT, tools=[TOOL]).choices[0].message
    told = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "12"}
    create(model="llm", messages=[*CHAT, called, told], tools=[TOOL])
    sent = json.loads(served.triton.requests[-1].inputs["messages"][0])
    id = called.tool_calls[0].id
    function = {"name": "f", "arguments": '{"a": "b c"}'}
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": id, "type": "function", "function": function}],
        },
        {"role": "tool", "content": "12", "tool_call_id": id},
    ]


def test_pictures_go_without_tools(serve: Serve) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    chat = [{"role": "user", "content": [picture]}]
    with pytest.raises(openai.BadRequestError, match="beside pictures"):
        serve().openai().chat.completions.create(model="llm", messages=chat, tools=[TOOL])


@pytest.mark.parametrize("strict", [True, False])
def test_whether_it_is_strict_is_told_to_the_model(serve: Serve, strict: bool) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    function = {"name": "f", "strict": strict, "parameters": schema}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}
    served = serve()
    served.openai().chat.completions.create(
        model="llm", messages=CHAT, response_format=form, tools=[{"type": "function", "function": function}]
    )
    (request,) = served.triton.requests
    assert json.loads(request.inputs["response_format"][0])["json_schema"]["strict"] is strict
    assert json.loads(request.inputs["tools"][0])[0]["function"]["strict"] is strict
