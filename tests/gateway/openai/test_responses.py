"""/v1/responses, called with OpenAI's own package."""

from __future__ import annotations

import json

import openai
import pytest

from tests.gateway.conftest import ANSWER, Serve, fails, fake_triton, wait_until
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.errors import InvalidArgument, Unavailable

WORDS = len(ANSWER.split())


def said(request: Request) -> list[tuple[str, str]]:
    """Roles and texts of the chat that Triton was sent."""
    messages = json.loads(request.inputs["messages"].ravel()[0])
    return [(one["role"], one["content"]) for one in messages]


def test_a_whole_response(serve: Serve) -> None:
    served = serve()
    client = served.openai()
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
    events = list(serve().openai().responses.create(model="llm", input="hi", stream=True))
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


async def test_openais_own_way_to_read_a_stream(serve: Serve) -> None:
    """Its accumulator checks that items and parts are announced before they grow."""
    async with serve().openai_async() as client, client.responses.stream(model="llm", input="hi") as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_response()
    assert final.output_text == ANSWER


def test_a_talk_goes_on_with_what_was_answered(serve: Serve) -> None:
    served = serve()
    client = served.openai()
    talk: list[object] = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    talk += client.responses.create(model="llm", input=talk).output  # type: ignore[arg-type]
    talk.append({"role": "user", "content": "and then?"})
    assert client.responses.create(model="llm", input=talk).output_text == ANSWER  # type: ignore[arg-type]
    sent = [one for one in served.triton.requests if one.model == "llm"][-1]
    assert said(sent) == [("user", "hi"), ("assistant", ANSWER), ("user", "and then?")]


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
        with pytest.raises(openai.BadRequestError, match="max_tokens is 9"):
            client.responses.create(model="llm", input="hi", stream=stream)
    client = serve(fake_triton(llm=fails(Unavailable("the engine is gone"), "half"))).openai()
    stream_ = client.responses.create(model="llm", input="hi", stream=True)
    with pytest.raises(openai.APIError, match="the engine is gone"):
        list(stream_)


def test_leaving_ends_the_generation(serve: Serve) -> None:
    served = serve(fake_triton(llm=scripted("word " * 200, step=0.02)))
    stream = served.openai().responses.create(model="llm", input="hi", stream=True)
    next(iter(stream))
    stream.close()
    wait_until(lambda: served.triton.cancelled, "the generation ends")
