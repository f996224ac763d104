"""Functions in talks: calls as items and events, their outputs, and the answer that follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.gateway.conftest import ANSWER, LIMIT_S, Serve, fake_triton
from tests.gateway.realtime.conftest import Dial, Event
from tests.gateway.realtime.openai.test_conversation import item, messages
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import scripted
from trimodal.gateway.realtime.openai.conversation import Conversation
from trimodal.gateway.realtime.openai.items import call_item, message_item, new_id
from trimodal.gateway.realtime.outbox import Outbox

TOOL = {
    "type": "function", "name": "weather", "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip
ARGUMENTS = '{"city": "Paris"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
OUTPUT = {"type": "function_call_output", "call_id": "no", "output": "x"}
FUNCTION = {
    "type": "function",
    "function": {name: TOOL[name] for name in ("name", "description", "parameters")},
}


async def calls_first(request: Request) -> AsyncIterator[Tensors]:
    """Calls until the output of the call is there."""
    answered = json.loads(request.inputs["messages"][0])[-1]["role"] == "tool"
    async for outputs in scripted(ANSWER if answered else CALL)(request):
        yield outputs


def test_openais_own_client_calls_and_goes_on(serve: Serve) -> None:
    running = serve(fake_triton(llm=calls_first))

    async def talk() -> tuple[str, list[str]]:
        text, kinds = "", []
        async with running.openai_async() as client, client.realtime.connect(model="llm") as connection:
            session = {"type": "realtime", "output_modalities": ["text"], "tools": [TOOL]}
            await connection.session.update(session=session)  # type: ignore[arg-type]
            await connection.conversation.item.create(item=item("In Paris?"))  # type: ignore[arg-type]
            await connection.response.create()
            async for event in connection:
                kinds.append(event.type)
                if event.type == "response.function_call_arguments.done":
                    assert (event.name, json.loads(event.arguments)) == ("weather", {"city": "Paris"})
                    output = {"type": "function_call_output", "call_id": event.call_id, "output": "sunny"}
                elif event.type == "response.done" and event.response.output[0].type == "function_call":  # type: ignore[index]
                    await connection.conversation.item.create(item=output)  # type: ignore[arg-type]
                    await connection.response.create()
                elif event.type == "response.output_text.delta":
                    text += event.delta
                elif event.type == "response.done":
                    return text, kinds
        raise AssertionError(kinds)

    text, kinds = asyncio.run(asyncio.wait_for(talk(), LIMIT_S))
    assert text == ANSWER
    assert list(dict.fromkeys(kinds))[4:9] == [
        "response.created", "response.output_item.added", "response.function_call_arguments.delta",
        "response.function_call_arguments.done", "response.output_item.done",
    ]  # fmt: skip
    user, called, output = messages(running.triton)
    assert user == {"role": "user", "content": "In Paris?"}
    ((call,), id) = called["tool_calls"], called["tool_calls"][0]["id"]  # type: ignore[index]
    assert call["function"] == {"name": "weather", "arguments": ARGUMENTS}  # type: ignore[index]
    assert output == {"role": "tool", "content": "sunny", "tool_call_id": id}
    (sent,) = {request.inputs["tools"][0] for request in running.triton.requests}
    assert json.loads(sent) == [FUNCTION]


def test_words_before_a_call_and_two_calls_are_items_of_their_own(serve: Serve, dial: Dial) -> None:
    running = serve(fake_triton(llm=scripted(f"Let me see.\n{CALL}\n{CALL}")))
    peer = dial(running, "model=llm")
    peer.send("session.update", session={"type": "realtime", "tools": [TOOL], "tool_choice": "required"})
    peer.ask(item("In Paris?", id="q"))
    output = peer.until("response.done")["response"]["output"]
    assert [one["type"] for one in output] == ["message", "function_call", "function_call"]
    assert output[0]["content"][0]["text"].strip() == "Let me see."
    assert {one["status"] for one in output} == {"completed"}
    added = [event for event in peer.events if event["type"] == "conversation.item.added"]
    places = [(event["previous_item_id"], event["item"]["id"]) for event in added[1:]]
    ids = ["q", *(one["id"] for one in output)]
    assert places == list(zip(ids, ids[1:], strict=False))
    for one in output[1:]:
        sent = {"type": "function_call_output", "call_id": one["call_id"], "output": "rain"}
        peer.send("conversation.item.create", item=sent)
    peer.send("response.create", response={"tool_choice": "none"})
    peer.until("response.done")
    talk = messages(running.triton)
    assert [one["role"] for one in talk] == ["user", "assistant", "tool", "tool"]
    assert (talk[1]["content"].strip(), len(talk[1]["tool_calls"])) == ("Let me see.", 2)
    asked = [request.inputs["tool_choice"][0] for request in running.triton.requests]
    assert asked == [b"required", b"none"]


def test_all_words_before_a_call_are_told_with_it() -> None:
    talk = Conversation(Outbox())
    for role, text in (
        ("user", "Table? Weather?"),
        ("assistant", "It is at 8."),
        ("assistant", "Let me see."),
    ):
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        talk.create(message_item(new_id("item"), role, content, "completed"), None)
    for number in "12":
        fields = {"call_id": number, "name": "weather", "arguments": "{}"}
        talk.create(call_item(new_id("item"), "function_call", **fields), None)
    user, answer = talk.messages()
    assert (user.text, answer.text) == ("Table? Weather?", "It is at 8.\nLet me see.")
    assert [call["id"] for call in answer.calls] == ["1", "2"]


def test_a_client_brings_calls_of_its_own(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    call = {
        "type": "function_call",
        "id": "c",
        "call_id": "call_1",
        "name": "weather",
        "arguments": ARGUMENTS,
    }
    peer.send("conversation.item.create", item=item("In Paris?"))
    peer.send("conversation.item.create", item=call)
    output = {"type": "function_call_output", "call_id": "call_1", "output": ""}
    peer.ask(output)
    peer.until("response.done")
    assert [one["role"] for one in messages(running.triton)] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"type": "function_call_output", "call_id": "no", "output": "x"},
            "item.call_id: there is no call 'no'",
        ),
        ({"type": "function_call_output", "call_id": "", "output": "x"}, "item.call_id has 0 characters"),
        ({"type": "function_call", "call_id": "a", "name": "b"}, "item.arguments: a text is needed"),
        (
            {"type": "function_call", "call_id": "a", "name": "b", "arguments": "x" * 70_000},
            "item.arguments has 70000 characters: 1 to 65536 are taken",
        ),
    ],
)
def test_bad_items_are_named(serve: Serve, dial: Dial, fields: Event, told: str) -> None:
    peer = dial(serve(), "model=llm")
    peer.receive()
    peer.send("conversation.item.create", item=fields)
    assert told in peer.receive()["error"]["message"]


def test_the_assistant_has_no_tools(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=assistant")
    peer.send("session.update", session={"type": "realtime", "tools": [TOOL]})
    refused = peer.refused()
    assert refused["param"] == "session.tools"
    assert refused["message"].endswith("are not supported by the model 'assistant'")
    peer.send("conversation.item.create", item=item("In Paris?"))
    peer.send("response.create", response={"tools": [TOOL]})
    done = peer.until("response.done")["response"]
    assert "tools are not supported beside pictures" in done["status_details"]["error"]["message"]


async def cut_call(request: Request) -> AsyncIterator[Tensors]:
    """Stops within the arguments of a call, the first time."""
    first = len(json.loads(request.inputs["messages"][0])) == 1
    text = CALL[: CALL.index("Paris")] if first else ANSWER
    async for outputs in scripted(text, finish_reason="length" if first else "stop")(request):
        yield outputs


def test_a_call_that_was_cut_off_is_no_part_of_the_talk(serve: Serve, dial: Dial) -> None:
    running = serve(fake_triton(llm=cut_call))
    peer = dial(running, "model=llm")
    peer.send("session.update", session={"type": "realtime", "tools": [TOOL]})
    peer.ask(item("In Paris?"))
    (call,) = peer.until("response.done")["response"]["output"]
    assert (call["type"], call["status"]) == ("function_call", "incomplete")
    peer.ask(item("Well?"))
    assert peer.until("response.done")["response"]["status"] == "completed"
    assert [one["content"] for one in messages(running.triton)] == ["In Paris?", "Well?"]
    peer.send("conversation.item.create", item={**OUTPUT, "call_id": call["call_id"]})
    assert "there is no call" in peer.refused()["message"]
    again = dial(running, "model=llm")  # the client puts its talk back
    for one in (item("In Paris?"), call):
        again.send("conversation.item.create", item=one)
    assert again.until("conversation.item.done")["item"]["status"] == "completed"
    assert again.until("conversation.item.done")["item"] == call
    again.ask(item("Well?"))
    assert again.until("response.done")["response"]["status"] == "completed"
    assert [one["content"] for one in messages(running.triton)] == ["In Paris?", "Well?"]
