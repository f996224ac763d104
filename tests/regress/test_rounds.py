"""A golden set asked of fakes: what is sent, in which order, and what becomes of refusals."""

import asyncio

import numpy as np
import pytest

from tests.doubles.virtual_clock import run_virtually
from tests.regress.runs import case
from trimodal.client import Client, ConnectionLost, FakeTransport
from trimodal.client.transports.fake import FakeSpeech, labelled, llm_outputs, scripted
from trimodal.errors import InvalidArgument, OperatorError, Unavailable
from trimodal.regress.cases import Case
from trimodal.regress.rounds import Side, run_cases
from trimodal.regress.schema import LINE
from trimodal.regress.values import Server


async def identify(models):
    return Server(name="fake", version=",".join(name for name, _ in models))


async def run(transport, *cases, tell=lambda done, of: None, repeat=2, timeout=60.0):
    async with Client(transport=transport) as client:
        (found,) = await run_cases([Side(client, identify)], cases, repeat, timeout, tell)
        return found


def embedding(request):
    """Texts that share their first letter have the same vector."""
    places = [text[0] % 4 if text else 0 for (text,) in request.inputs["text_input"]]
    return {"embedding": np.eye(4, dtype=np.float32)[places]}


async def test_an_answer_and_its_figures():
    transport = FakeTransport(llm=scripted("one two three"))
    told = []
    found = await run(
        transport,
        case(1, input={"prompt": "hi", "max_tokens": 9, "tenant": "t"}),
        case(2, input={"messages": [{"role": "user", "content": "é"}]}),
        tell=lambda done, of: told.append((done, of)),
    )
    one, two = found.cases["case-1"], found.cases["case-2"]
    assert [answer.text for answer in one.answers] == ["one two three"]
    assert one.answers[0].finish_reason == "stop"
    assert len(one.observations) == len(two.observations) == 3
    row = one.observations[1]
    assert (row.tokens, row.cache) == (3, "")
    assert 0 < row.ttft <= row.total
    assert row.tpot > 0
    assert found.server == Server(name="fake", version="llm")
    assert told == [(number, 6) for number in range(1, 7)]
    sent = transport.requests
    assert sent[0].inputs["tenant"][0] == b"t"
    assert sent[1].inputs["messages"][0] == '[{"role": "user", "content": "é"}]'.encode()
    assert ["tenant" in request.inputs for request in sent] == [True, False] * 3


async def test_images_speech_and_vectors():
    transport = FakeTransport(
        vision=labelled(("7", 0.75), ("1", 0.25)),
        speech=FakeSpeech(("hello", 0.1, 0.3), ("there", 0.4, 0.6)),
        embedding=embedding,
    )
    image = LINE.validate_python({"id": "i", "task": "vision", "input": {"image": "x.png", "top_k": 1}})
    sound = LINE.validate_python({"id": "s", "task": "speech", "input": {"audio": "x.wav", "policy": "edge"}})
    found = await run(
        transport,
        Case(1, image, b"picture", None, "d"),
        Case(2, sound, None, np.zeros(16_000, np.float32), "d"),
        case(3, task="embedding", input={"text": "b"}),
    )
    assert found.cases["i"].answers[0].labels == (("7", 0.75),)
    assert found.cases["s"].answers[0].text == "hello there"
    assert found.cases["case-3"].answers[0].vector == (0, 0, 1, 0)
    assert all(row.total > 0 for record in found.cases.values() for row in record.observations)
    images = [request for request in transport.requests if request.model == "vision"]
    assert [request.inputs["image"][0][0] for request in images] == [b"picture"] * 3


async def test_the_assistant_is_asked_with_all_that_it_has():
    async def assistant(request):
        for stage, text in (("heard", "what is it"), ("saw", ""), ("answer", "a "), ("answer", "seven")):
            outputs = llm_outputs(
                text, "stop" if text == "seven" else "", completion_tokens=1 + (text == "seven")
            )
            outputs["stage"] = np.array([stage.encode()], object)
            if stage == "saw":
                outputs |= {"labels": np.array([b"7"], object), "scores": np.array([0.9], np.float32)}
            if text == "seven":
                outputs["timing"] = np.array([b'{"heard": 12.5, "saw": 3.5, "total": 20}'], object)
            yield outputs

    asked = {"image": "x.png", "audio": "x.wav", "max_tokens": 5}
    line = LINE.validate_python({"id": "a", "task": "assistant", "input": asked})
    transport = FakeTransport(assistant=assistant)
    found = await run(transport, Case(1, line, b"picture", np.zeros(1600, np.float32), "d"))
    (answer,) = found.cases["a"].answers
    assert (answer.text, answer.labels, answer.finish_reason) == ("a seven", (("7", 0.9),), "stop")
    assert found.cases["a"].observations[1].ttft > 0
    assert set(transport.requests[0].inputs) == {"image", "audio", "max_tokens"}


def test_a_refusal_and_a_silent_server_are_answers():
    states = iter([Unavailable("the queue is full", 0.5), InvalidArgument("max_tokens is 0"), None])

    async def model(request):
        if error := next(states):
            raise error
        await asyncio.Event().wait()
        yield

    found = run_virtually(run(FakeTransport(llm=model), case(), timeout=0.05)).cases["case-1"]
    assert [one.answer.error for one in found.observations] == ["UNAVAILABLE", "INVALID_ARG", "TIMEOUT"]
    assert found.answers[0].text == "the queue is full; retry after 0.5 s"
    assert found.observations[0].ttft is None


async def test_a_server_that_goes_away_ends_it():
    calls = []

    async def model(request):
        calls.append(request)
        if len(calls) > 3:
            raise ConnectionLost("the server went away")
        yield llm_outputs("x", "stop")

    cases = [case(number) for number in range(1, 9)]
    with pytest.raises(ConnectionLost):
        await run(FakeTransport(llm=model), *cases)
    assert len(calls) == 4


async def test_a_model_that_is_missing():
    transport = FakeTransport(llm=scripted("x"))
    with pytest.raises(OperatorError, match=r"no model 'assistant' ready, which line 2 \(case-2\) needs"):
        await run(transport, case(1), case(2, task="assistant", input={"text": "x"}))
    assert transport.requests == []


async def test_numbers_that_are_none_are_the_models_fault():
    transport = FakeTransport(
        vision=labelled(("7", float("nan"))), embedding=lambda request: {"embedding": np.full((1, 4), np.inf)}
    )
    image = LINE.validate_python({"id": "i", "task": "vision", "input": {"image": "x.png"}})
    vector = case(2, task="embedding", input={"text": "b"})
    found = await run(transport, Case(1, image, b"picture", None, "d"), vector)
    assert found.cases["i"].answers[0].text == "a score of the answer is not finite"
    assert found.cases["case-2"].answers[0].error == "INTERNAL"


async def test_two_servers_are_asked_in_turn():
    order = []

    def model(name):
        async def answer(request):
            order.append(name + request.inputs["text_input"][0].decode())
            yield llm_outputs(name, "stop")

        return answer

    async def other(models):
        return Server(name="other")

    one, two = (FakeTransport(llm=model(name)) for name in "ab")
    cases = [case(number, input={"prompt": str(number)}) for number in (1, 2)]
    async with Client(transport=one) as first, Client(transport=two) as second:
        runs = await run_cases([Side(first, identify), Side(second, other)], cases, 2, 60.0)
    assert order == ["a1", "b1", "a2", "b2", "b1", "a1", "b2", "a2", "a1", "b1", "a2", "b2"]
    assert [found.cases["case-2"].answers[0].text for found in runs] == ["a", "b"]
    assert [found.server.name for found in runs] == ["fake", "other"]
