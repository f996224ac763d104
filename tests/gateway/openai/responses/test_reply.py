"""/v1/responses, called with OpenAI's own package."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import ANSWER, Running, Serve, fails, fake_triton
from tests.gateway.openai.test_chat import thinking
from tests.gateway.openai.test_conversation import PICTURE
from tests.gateway.openai.test_tools import CALL, Thing
from tests.gateway.test_bad_requests import wav
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.openai.responses import store

WORDS = len(ANSWER.split())


def strict(served: Running) -> openai.OpenAI:
    """A client that holds every answer to the package's own types."""
    return served.openai(_strict_response_validation=True)


def said(request: Request) -> list[tuple[str, str]]:
    """Roles and texts of the chat that Triton was sent."""
    messages = json.loads(request.inputs["messages"].ravel()[0])
    return [(one["role"], one["content"]) for one in messages]


def test_a_whole_response(serve: Serve) -> None:
    served = serve()
    client = strict(served)
    raw = client.responses.with_raw_response.create(
        model="llm", input="what is it?", instructions="Be short.", max_output_tokens=50, metadata={"a": "b"}
    )
    answer = raw.parse()
    assert answer.output_text == ANSWER
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (8, WORDS)
    assert answer.metadata == {"a": "b"}
    assert raw.headers["x-trimodal-cache"] == "miss"
    (sent,) = [one for one in served.triton.requests if one.model == "llm"]
    assert sent.inputs["max_tokens"].tolist() == [50]
    assert said(sent) == [("system", "Be short."), ("user", "what is it?")]


def test_the_events_of_a_stream(serve: Serve) -> None:
    events = list(strict(serve()).responses.create(model="llm", input="hi", stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
    assert events[-4].text == events[-1].response.output_text == ANSWER
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1


def test_an_answer_that_is_cut_is_incomplete(serve: Serve) -> None:
    async def cut(request):  # type: ignore[no-untyped-def]
        yield llm_outputs("half", "")
        yield llm_outputs("", "length", completion_tokens=1)

    client = serve(fake_triton(llm=cut)).openai()
    answer = client.responses.create(model="llm", input="hi")
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    *_, last = client.responses.create(model="llm", input="hi", stream=True)
    assert (last.type, last.response.output_text) == ("response.incomplete", "half")


def test_refusals_and_failures_of_the_server(serve: Serve) -> None:
    refused = fails(InvalidArgument("max_tokens is 9 and the limit is 8"))
    client = serve(fake_triton(llm=refused)).openai()
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="max_output_tokens is 9"):
            client.responses.create(model="llm", input="hi", stream=stream)
    client = serve(fake_triton(llm=fails(Unavailable("the engine is gone"), "half"))).openai()
    events: list[Any] = []
    stream_ = client.responses.create(model="llm", input="hi", stream=True)
    with pytest.raises(openai.APIError, match="the engine is gone"):
        events.extend(event for event in stream_)
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.message == "the engine is gone"
    assert events[-1].response.output_text == "half"


def test_a_failure_behind_the_answer_is_one_of_the_response(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is heard and seen in files is asked for when the answer has ended."""

    async def refuse(*_: object) -> bool:
        raise Unavailable("vision is gone")

    monkeypatch.setattr(store.ResponseStore, "put", refuse)
    events: list[Any] = []
    stream = serve().openai().responses.create(model="llm", input="hi", stream=True)
    with pytest.raises(openai.APIError, match="vision is gone"):
        events.extend(event for event in stream)
    assert [one.type for one in events[-2:]] == ["response.output_item.done", "response.failed"]
    assert events[-1].response.output_text == ANSWER


TOOL: dict[str, object] = {
    "type": "function",
    "name": "f",
    "description": "Finds.",
    "parameters": {"type": "object"},
    "strict": False,
}
ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}


def sent_to(served: Running, model: str = "llm") -> Request:
    """The last request to a model."""
    return [one for one in served.triton.requests if one.model == model][-1]


def test_a_loop_of_tools(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(f"Wait.\n{CALL}\n{CALL}")))
    create = strict(served).responses.create
    asked: dict[str, Any] = {"model": "llm", "tools": [TOOL], "parallel_tool_calls": True}
    talk: list[Any] = [{"role": "user", "content": "hi"}]
    answer = create(input=talk, **asked)
    assert [item.type for item in answer.output] == ["message", "function_call", "function_call"]
    calls = answer.output[1:]
    assert [(one.name, one.arguments, one.status) for one in calls] == [
        ("f", '{"a": "b c"}', "completed")
    ] * 2
    request = sent_to(served)
    function = {key: value for key, value in TOOL.items() if key != "type"}
    assert json.loads(request.inputs["tools"][0]) == [{"type": "function", "function": function}]
    talk += [one.model_dump() for one in answer.output]
    talk += [{"type": "function_call_output", "call_id": one.call_id, "output": "12"} for one in calls]
    served.triton.functions["llm"] = scripted("It is 12.")
    assert create(input=talk, **asked).output_text == "It is 12."
    messages = json.loads(sent_to(served).inputs["messages"][0])
    assert [one["role"] for one in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[1]["content"] == "Wait.\n"
    named = [(one["id"], one["function"]["arguments"]) for one in messages[1]["tool_calls"]]
    assert named == [(one.call_id, '{"a": "b c"}') for one in calls]
    assert [one["tool_call_id"] for one in messages[2:]] == [one.call_id for one in calls]


def test_the_events_of_calls(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(f"Wait.\n{CALL}")))
    with strict(served).responses.stream(model="llm", input="hi", tools=[TOOL]) as stream:  # type: ignore[list-item]
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    once = [kind for kind, before in zip(kinds, [None, *kinds], strict=False) if kind != before]
    assert [kind.removeprefix("response.") for kind in once] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    message, call = answer.output
    assert (message.content[0].text, call.arguments) == ("Wait.\n", '{"a": "b c"}')  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        (ALLOWED, "required"),
    ],
)
def test_a_choice_of_tools(serve: Serve, choice: object, sent: object) -> None:
    served = serve(fake_triton(llm=scripted(CALL)))
    other = {"type": "function", "name": "g"}
    strict(served).responses.create(model="llm", input="hi", tools=[TOOL, other], tool_choice=choice)  # type: ignore[call-overload]
    inputs = sent_to(served).inputs
    told = inputs["tool_choice"][0].decode()
    assert (json.loads(told) if isinstance(sent, dict) else told) == sent
    names = [tool["function"]["name"] for tool in json.loads(inputs["tools"][0])]
    assert names == (["f"] if choice is ALLOWED else ["f", "g"])


def test_a_form_is_parsed(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted('{"size": 3}')))
    answer = strict(served).responses.parse(model="llm", input="hi", text_format=Thing)
    assert answer.output_parsed == Thing(size=3)
    sent = json.loads(sent_to(served).inputs["response_format"][0])
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["properties"]["size"]["type"] == "integer"
    assert answer.text is not None
    assert answer.text.format.name == "Thing"  # type: ignore[union-attr]


def test_pictures_and_recordings(serve: Serve) -> None:
    served = serve()
    recording = base64.b64encode(wav()).decode()
    content = [
        {"type": "input_text", "text": "what is it?"},
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
        {"type": "input_audio", "input_audio": {"data": recording, "format": "wav"}},
    ]
    create = strict(served).responses.create
    first = create(model="llm", input=[{"role": "user", "content": content}])  # type: ignore[list-item,misc]
    assert first.output_text == "A seven."
    assert {"text_input", "image", "audio"} < set(sent_to(served, "assistant").inputs)
    # What was heard and seen is kept in place of the files, and they are not looked at again.
    create(model="llm", input="and now?", previous_response_id=first.id)
    asked = sent_to(served, "assistant").inputs
    question, answered = json.loads(asked["history"][0])
    assert (question["content"], question["heard"]) == ("what is it?", "what is this")
    assert question["labels"][0] == {"label": "seven", "score": pytest.approx(0.9)}
    assert (answered["role"], answered["content"]) == ("assistant", "A seven.")
    assert "image" not in asked
    assert not [one for one in served.triton.requests if one.model in ("vision", "speech")]


def test_a_talk_goes_on_from_what_is_kept(serve: Serve) -> None:
    served = serve()
    client = strict(served)
    first = client.responses.create(model="llm", input="hi", instructions="Be short.")
    stream = client.responses.create(model="llm", input="and?", previous_response_id=first.id, stream=True)
    *_, ended = stream
    assert said(sent_to(served)) == [("user", "hi"), ("assistant", ANSWER), ("user", "and?")]
    assert ended.response.previous_response_id == first.id
    assert ended.response.truncation == "auto"
    client.responses.create(
        model="llm", input="so?", instructions="x", previous_response_id=ended.response.id
    )
    assert [role for role, _ in said(sent_to(served))] == ["system", *["user", "assistant"] * 2, "user"]
    kept = client.responses.retrieve(first.id)
    assert (kept.output_text, kept.status, kept.store) == (ANSWER, "completed", True)
    client.responses.delete(first.id)
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            call(first.id)
    with pytest.raises(openai.NotFoundError) as told:
        client.responses.create(model="llm", input="a", previous_response_id=first.id)
    assert (told.value.param, told.value.code) == ("previous_response_id", "previous_response_not_found")


def test_a_loop_of_tools_goes_on_from_what_is_kept(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted(CALL)))
    create = strict(served).responses.create
    called = create(model="llm", input="hi", tools=[TOOL])  # type: ignore[list-item]
    (call,) = called.output
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "12"}  # type: ignore[union-attr]
    create(model="llm", input=[result], tools=[TOOL], previous_response_id=called.id)  # type: ignore[list-item]
    user, assistant, tool = json.loads(sent_to(served).inputs["messages"][0])
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"]
    assert (user["content"], tool["content"]) == ("hi", "12")


@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("stop", "completed")])
def test_a_call_that_was_cut_is_not_kept(serve: Serve, reason: str, status: str) -> None:
    """Its arguments are no JSON: the model would refuse the talk from then on. A stop string cuts, too."""
    cut = CALL[: CALL.index(" c")]
    served = serve(fake_triton(llm=scripted(cut, finish_reason=reason)))
    create = strict(served).responses.create
    first = create(model="llm", input="hi", tools=[TOOL])  # type: ignore[list-item]
    assert (first.status, first.output[0].status) == (status, "incomplete")  # type: ignore[union-attr]
    create(model="llm", input="and?", previous_response_id=first.id)
    assert [one.get("tool_calls") for one in json.loads(sent_to(served).inputs["messages"][0])] == [None] * 3


def test_what_is_not_to_be_kept_is_not(serve: Serve) -> None:
    client = strict(serve())
    answer = client.responses.create(model="llm", input="hi", store=False)
    assert answer.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_one_whose_client_left_before_its_end_is_not_kept(serve: Serve) -> None:
    """As at OpenAI without `background`: its generation ends with the connection."""
    served = serve(fake_triton(llm=scripted("word " * 10_000, step=0.01)))
    client = strict(served)
    with client.responses.create(model="llm", input="hi", stream=True) as events:
        began = next(iter(events))
    assert began.type == "response.created"
    wait_until(lambda: served.triton.cancelled, "the end of its generation")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(began.response.id)


def test_each_tenant_has_its_own(serve: Serve, file: Path) -> None:
    keys = {name: add_key(file, Key(name=name, tenant=name)) for name in ("one", "two")}
    served = serve(keys=file)
    mine = served.openai(keys["one"]).responses.create(model="llm", input="hi")
    other = served.openai(keys["two"]).responses
    for call in (other.retrieve, other.delete):
        with pytest.raises(openai.NotFoundError):
            call(mine.id)
    with pytest.raises(openai.NotFoundError):
        other.create(model="llm", input="a", previous_response_id=mine.id)
    assert served.openai(keys["one"]).responses.retrieve(mine.id).id == mine.id


def test_a_file_outlives_the_gateway(serve: Serve, tmp_path: Path) -> None:
    place = str(tmp_path / "responses.sqlite")
    first = serve(fake_triton(), responses=place).openai().responses.create(model="llm", input="hi")
    again = serve(fake_triton(), responses=place)
    again.openai().responses.create(model="llm", input="and?", previous_response_id=first.id)
    assert said(sent_to(again)) == [("user", "hi"), ("assistant", ANSWER), ("user", "and?")]


@pytest.mark.parametrize(
    ("given", "previous", "sent"),
    [
        (None, False, "disabled"),
        (None, True, "auto"),
        ("auto", False, "auto"),
        ("disabled", True, "disabled"),
    ],
)
def test_truncation(serve: Serve, given: Any, previous: bool, sent: str) -> None:
    served = serve()
    create = strict(served).responses.create
    more: dict[str, Any] = {"truncation": given}
    if previous:
        more["previous_response_id"] = create(model="llm", input="hi").id
    assert create(model="llm", input="a", **more).truncation == sent
    assert sent_to(served).inputs["truncation"].tolist() == [sent.encode()]


def test_what_a_talk_has_lost_here_is_told(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_MESSAGES", 5)
    served = serve()
    create = strict(served).responses.create
    last = create(model="llm", input="0")
    for n in range(1, 5):
        last = create(model="llm", input=str(n), previous_response_id=last.id)
    assert last.trimodal["trimmed"] == {"messages": 4}  # type: ignore[attr-defined]
    assert [text for _, text in said(sent_to(served))] == ["2", ANSWER, "3", ANSWER, "4"]
    with pytest.raises(openai.BadRequestError) as told:
        create(model="llm", input="a", previous_response_id=last.id, truncation="disabled")
    assert told.value.code == "context_length_exceeded"
    several = [{"role": role, "content": "new"} for role in ("user", "assistant", "user")]
    create(model="llm", input=several, previous_response_id=last.id)
    assert [text for _, text in said(sent_to(served))] == ["new"] * 3, "with what is new it is not too long"


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(serve: Serve, stream: bool) -> None:
    served = serve()
    asked: dict[str, Any] = {"model": "llm", "input": "hi", "include": ["message.output_text.logprobs"]}
    if stream:
        with strict(served).responses.stream(**asked, top_logprobs=2) as events:
            deltas = [event for event in events if event.type == "response.output_text.delta"]
            answer = events.get_final_response()
        assert all(len(delta.logprobs) == 1 for delta in deltas)
    else:
        answer = strict(served).responses.create(**asked, top_logprobs=2)
    told = answer.output[0].content[0].logprobs
    assert "".join(bytes(one.bytes).decode() for one in told) == ANSWER
    assert len(told[0].top_logprobs) == 2


def test_vllms_sampling_is_handed_on(serve: Serve) -> None:
    served = serve()
    more = {"top_k": -1, "seed": 7, "stop": ["x"], "repetition_penalty": 1.1, "min_tokens": 2}
    strict(served).responses.create(model="llm", input="hi", extra_body=more)
    inputs = sent_to(served).inputs
    assert inputs["min_tokens"].tolist() == [2]
    assert (inputs["top_k"].tolist(), inputs["seed"].tolist(), inputs["stop"].tolist()) == ([-1], [7], [b"x"])


def test_what_other_servers_put_into_a_talk_is_ignored_and_named(serve: Serve) -> None:
    served = serve()
    raw = strict(served).responses.with_raw_response.create(
        model="llm",
        input=[  # type: ignore[list-item]
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"role": "user", "content": "hi"},
        ],
        reasoning={"generate_summary": "auto"},
        user="somebody",
    )
    assert said(sent_to(served)) == [("user", "hi")]
    assert {"reasoning.generate_summary", "user"} <= set(raw.headers["x-ignored-fields"].split(", "))


def test_the_chat_template_is_told_how_much_to_think(serve: Serve) -> None:
    served = serve()
    more = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = strict(served).responses.create(
        model="llm", input="hi", reasoning={"effort": "low"}, extra_body=more
    )
    kwargs = json.loads(sent_to(served).inputs["chat_template_kwargs"][0])
    assert kwargs == {"enable_thinking": False, "reasoning_effort": "low"}
    assert answer.reasoning is not None
    assert answer.reasoning.effort == "low"


LOOK_AHEAD = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": LOOK_AHEAD}}},
         "text.format.properties.a.pattern"),
        ({"tools": [{"type": "function", "name": "f", "parameters": LOOK_AHEAD, "strict": False}]},
         "tools[0].parameters.properties.a.pattern"),
    ],
)  # fmt: skip
def test_what_no_answer_is_held_to_is_named(serve: Serve, asked: dict[str, Any], named: str) -> None:
    raw = serve().openai().responses.with_raw_response.create(model="llm", input="hi", **asked)
    assert raw.headers["x-ignored-fields"] == named


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_an_item_of_their_own(serve: Serve, stream: bool) -> None:
    client = strict(serve(fake_triton(llm=thinking)))
    if stream:
        events = list(client.responses.create(model="llm", input="hi", stream=True))
        deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
        assert deltas == ["Two", " and two."]
        (done,) = [event for event in events if event.type == "response.reasoning_text.done"]
        assert done.text == "Two and two."
        answer = events[-1].response
    else:
        answer = client.responses.create(model="llm", input="hi")
    thoughts, message = answer.output
    assert (thoughts.type, thoughts.status, thoughts.content[0].text) == (
        "reasoning",
        "completed",
        "Two and two.",
    )
    assert (message.type, answer.output_text) == ("message", "4")


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_a_summary_where_one_is_asked_for(serve: Serve, stream: bool) -> None:
    client = strict(serve(fake_triton(llm=thinking)))
    asked: dict[str, Any] = {"model": "llm", "input": "hi", "reasoning": {"summary": "auto"}}
    if stream:
        events = list(client.responses.create(**asked, stream=True))
        told = [event for event in events if "reasoning" in event.type]
        assert [event.type.removeprefix("response.reasoning_summary_") for event in told] == [
            "part.added", "text.delta", "text.delta", "text.done", "part.done"
        ]  # fmt: skip
        assert {(event.item_id, event.summary_index) for event in told} == {(told[0].item_id, 0)}
        assert told[0].part.text == ""
        assert [event.delta for event in told[1:3]] == ["Two", " and two."]
        assert told[3].text == told[4].part.text == "Two and two."
        answer = events[-1].response
    else:
        answer = client.responses.create(**asked)
    thoughts, message = answer.output
    assert (thoughts.type, thoughts.status, thoughts.content) == ("reasoning", "completed", None)
    assert [(part.type, part.text) for part in thoughts.summary] == [("summary_text", "Two and two.")]
    assert (answer.reasoning.summary, message.type, answer.output_text) == ("auto", "message", "4")
