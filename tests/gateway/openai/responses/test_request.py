"""Items that name those of earlier answers, and calls that were cut."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.openai.responses.test_reply import TOOL, sent_to, strict
from tests.gateway.openai.test_tools import CALL
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.client.transports.tensors import strings
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.openai.responses import store


def named(*items: Any) -> list[Any]:
    """These items of an answer, as Vercel's AI SDK sends them back."""
    return [{"type": "item_reference", "id": item.id} for item in items]


async def thinks_speaks_calls(request: Request) -> AsyncIterator[Tensors]:
    yield {**llm_outputs("", completion_tokens=2), "reasoning": strings([b"Look it up."])}
    yield llm_outputs(f"Wait.\n{CALL}", "stop", completion_tokens=3)


def test_items_of_an_earlier_answer_may_be_named(serve: Serve) -> None:
    served = serve(fake_triton(llm=thinks_speaks_calls))
    create = strict(served).responses.create
    asked: dict[str, Any] = {"model": "llm", "tools": [TOOL]}
    question = {"role": "user", "content": "hi"}
    first = create(input=[question], **asked)
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    assert [item.id.rsplit("_", 1)[1] for item in first.output] == ["0", "1", "2"]  # type: ignore[union-attr]
    call = first.output[2]
    served.triton.functions["llm"] = scripted("It is 12.")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12"}  # type: ignore[union-attr]
    talk = [question, *named(*first.output), result]
    second = create(input=talk, **asked)
    *_, third = create(input=[*talk, *named(*second.output), question], **asked, stream=True)
    assert third.response.output_text == "It is 12."
    user, assistant, tool, answer, _ = json.loads(sent_to(served).inputs["messages"][0])
    assert (user["content"], assistant["content"], tool["content"]) == ("hi", "Wait.\n", "12")
    assert [one["id"] for one in assistant["tool_calls"]] == [tool["tool_call_id"]] == [call.call_id]  # type: ignore[union-attr]
    assert (answer["role"], answer["content"]) == ("assistant", "It is 12.")


@pytest.mark.parametrize(
    "id", ["msg_1", f"msg_{'0' * 32}_0", "resp_" + "0" * 32, "", "x" * 5_000, "msg_{key}_7", "fc_{key}_0"]
)
def test_an_item_that_is_not_kept_is_named(serve: Serve, id: str) -> None:
    create = strict(serve()).responses.create
    first = create(model="llm", input="hi")
    talk: list[Any] = [
        {"role": "user", "content": "hi"},
        {"type": "item_reference", "id": id.format(key=first.id.removeprefix("resp_"))},
    ]
    with pytest.raises(openai.NotFoundError, match=r"input\[1\]: there is no item .* store: false") as told:
        create(model="llm", input=talk)
    assert (told.value.param, told.value.code) == ("input", "item_not_found")


def test_items_of_what_is_not_kept_or_another_tenants_are_not_there(serve: Serve, file: Path) -> None:
    keys = {name: add_key(file, Key(name=name, tenant=name)) for name in ("one", "two")}
    served = serve(keys=file)
    mine, other = (served.openai(key).responses for key in keys.values())
    kept, forgotten = (mine.create(model="llm", input="hi", store=stored) for stored in (True, False))
    assert mine.create(model="llm", input=[*named(*kept.output), {"role": "user", "content": "and?"}])
    for responses, answer in ((other, kept), (mine, forgotten)):
        with pytest.raises(openai.NotFoundError):
            responses.create(model="llm", input=named(*answer.output))


def test_named_items_have_a_bound(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    create = strict(serve()).responses.create
    items = [create(model="llm", input="hi").output[0] for _ in range(8)]
    monkeypatch.setattr(store, "MAX_RESPONSE_BYTES", 1_000)
    assert create(model="llm", input=[*named(items[0]), {"role": "user", "content": "and?"}])
    with pytest.raises(openai.BadRequestError, match="input: the items that it names have more than 1000"):
        create(model="llm", input=named(*items))
    with pytest.raises(openai.BadRequestError, match="input: the items that it names have more than 1000"):
        create(model="llm", input=named(items[0]) * 8)


def test_a_call_that_was_cut_is_passed_over_with_its_result(serve: Serve) -> None:
    cut = CALL[: CALL.index(" c")]
    served = serve(fake_triton(llm=scripted(cut, finish_reason="length")))
    create = strict(served).responses.create
    asked: dict[str, Any] = {"model": "llm", "tools": [TOOL]}
    (call,) = create(input="hi", **asked).output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12"}  # type: ignore[union-attr]
    for sent_back in ([call.model_dump()], named(call)):
        create(input=[{"role": "user", "content": "hi"}, *sent_back, result], **asked)
        (message,) = json.loads(sent_to(served).inputs["messages"][0])
        assert message == {"role": "user", "content": "hi"}


def test_a_cut_call_hides_no_whole_one_of_its_id(serve: Serve) -> None:
    """Some servers count calls anew in each answer."""
    call = {"type": "function_call", "call_id": "call_0", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_0"}
    cut = {**call, "arguments": '{"a": "b', "status": "incomplete"}
    served = serve()
    strict(served).responses.create(
        model="llm",
        tools=[TOOL],
        input=[
            call,
            {**result, "output": "1"},
            cut,
            {**result, "output": "2"},
            call,
            {**result, "output": "3"},
        ],  # type: ignore[list-item]
    )
    messages = json.loads(sent_to(served).inputs["messages"][0])
    assert [one["content"] for one in messages if one["role"] == "tool"] == ["1", "3"]
    assert len([one for one in messages if one.get("tool_calls")]) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_whole_where_the_answer_is_cut_behind_it(serve: Serve, stream: bool) -> None:
    whole = CALL[: CALL.index("}}") + 2]
    served = serve(fake_triton(llm=scripted(whole, finish_reason="length")))
    create = strict(served).responses.create
    asked: dict[str, Any] = {"model": "llm", "input": "hi", "tools": [TOOL]}
    answer = [*create(**asked, stream=True)][-1].response if stream else create(**asked)
    (call,) = answer.output
    assert (answer.status, call.status, call.arguments) == ("incomplete", "completed", '{"a": "b c"}')
    create(model="llm", input="and?", previous_response_id=answer.id)
    _, assistant, _ = json.loads(sent_to(served).inputs["messages"][0])
    assert assistant["tool_calls"][0]["id"] == call.call_id, "it is kept"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [('{"a": "b', "is not valid JSON"), ("[1]", "must be the text of a JSON object"), ("", "is not valid")],
)
def test_wrong_arguments_are_named_by_their_item(serve: Serve, arguments: str, why: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    talk: list[Any] = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {**call, "arguments": "{}"},
        call,
    ]
    with pytest.raises(openai.BadRequestError, match=why) as told:
        strict(serve()).responses.create(model="llm", input=talk, instructions="Be short.")
    assert told.value.param == "input[3].arguments"
