import asyncio
import json
import os
import threading

import numpy as np
import pytest

from tests.doubles.waiting import until
from trimodal.client import (
    AudioFindings,
    Client,
    Delta,
    FakeTransport,
    ImageFindings,
    Prediction,
    ProtocolError,
)
from trimodal.client.transports.fake import llm_outputs
from trimodal.client.transports.tensors import strings
from trimodal.errors import InvalidArgument, Unavailable

TIMING = {"heard": 12.5, "saw": None, "queue": 1.0, "ttft": 20.0, "answer": 30.0, "total": 42.5}


def outputs(stage, **more):
    return {"stage": strings([stage.encode()]), **more}


def saw(*labels):
    names, scores = zip(*labels, strict=True)
    return outputs("saw", labels=strings(list(names)), scores=np.array(scores, np.float32))


async def assistant(request):
    yield saw((b"7", 0.75), (b"1", 0.25))
    yield outputs("heard", text_output=strings(["wörds".encode()]))
    yield outputs("answer", **llm_outputs("An answer"))
    last = llm_outputs("", "stop", completion_tokens=2) | {"timing": strings([json.dumps(TIMING).encode()])}
    yield outputs("answer", **last)


def client(model=assistant):
    transport = FakeTransport(assistant=model)
    return Client(transport=transport), transport


async def test_findings_come_before_the_answer(tmp_path):
    one, transport = client()
    file = tmp_path / "a.png"
    file.write_bytes(b"\0image\0")
    samples = np.zeros(100, np.int16)
    stream = one.ask("q?", image=file, audio=samples, max_tokens=5, tenant="t", deadline_ms=900)
    items = [item async for item in stream]
    labels = (Prediction("7", 0.75), Prediction("1", 0.25))
    assert items == [
        ImageFindings(labels),
        AudioFindings("wörds"),
        Delta("An answer", 1),
        Delta("", 1, "stop"),
    ]
    assert (stream.heard, stream.labels, stream.text) == ("wörds", labels, "An answer")
    assert (stream.finish_reason, stream.usage.completion, stream.stages) == ("stop", 2, TIMING)
    (request,) = transport.requests
    assert set(request.inputs) == {
        "text_input",
        "image",
        "audio_int16",
        "max_tokens",
        "tenant",
        "deadline_ms",
    }
    assert request.inputs["image"].tolist() == [b"\0image\0"]
    assert request.inputs["audio_int16"].shape == (100,)


async def test_the_whole_answer_at_once():
    answer = await client()[0].ask(audio=np.zeros(10, np.float32)).answer()
    assert (answer.text, answer.finish_reason) == ("An answer", "stop")


async def test_leaving_cancels_on_the_server():
    one, transport = client()
    async with one.ask("q") as stream:
        async for _ in stream:
            break
    assert transport.cancelled == transport.requests
    assert stream.finish_reason == "cancelled"


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"image": "/none.png"}, InvalidArgument, "/none.png: no such file or directory"),
        ({"image": "a\0b"}, InvalidArgument, "null"),
        ({"cancel_key": "k" * 16}, InvalidArgument, "cancel_key: the assistant takes none"),
        ({"audio": np.zeros(3)}, TypeError, "float64"),
        ({"audio": np.zeros((3, 2), np.float32)}, ValueError, "one channel"),
        ({"max_tokens": 2**40}, InvalidArgument, "max_tokens is"),
    ],
)
async def test_what_cannot_be_asked_is_not_sent(given, error, told):
    one, transport = client()
    with pytest.raises(error, match=told):
        await one.ask("q", **given).answer()
    assert not transport.requests


async def test_errors_of_the_server_are_raised():
    async def model(request):
        yield outputs("heard", text_output=strings([b"a"]))
        raise Unavailable("answer: the queue is full")

    stream = client(model)[0].ask("q")
    with pytest.raises(Unavailable, match="answer: the queue is full"):
        await stream.answer()
    assert stream.heard == "a"


@pytest.mark.parametrize(
    "damage",
    [
        {"text_output": strings([b"a"])},
        outputs("heard"),
        outputs("saw", labels=strings([b"a"]), scores=np.array([], np.float32)),
        outputs("answer", **llm_outputs("", "stop"), timing=strings([b"{"])),
        outputs("answer", **llm_outputs("", "stop"), timing=strings([b"7"])),
        outputs("answer", text_output=strings([b"a"])),
    ],
)
async def test_what_cannot_be_read_is_a_protocol_error(damage):
    async def model(request):
        yield damage

    with pytest.raises(ProtocolError, match="the answer of the assistant cannot be read"):
        await client(model)[0].ask("q").answer()


async def test_a_picture_without_end_is_refused_before_it_is_sent():
    one, transport = client()
    with pytest.raises(InvalidArgument, match="/dev/zero: it has more than 67,108,864 bytes"):
        async for _ in one.ask("q?", image="/dev/zero"):
            pass
    assert not transport.requests


@pytest.mark.parametrize("given", ["image", "audio"])
async def test_a_pipe_that_gives_nothing_keeps_no_program_alive(given, tmp_path):
    fifo = tmp_path / "a.raw"
    os.mkfifo(fifo)
    before = set(threading.enumerate())
    one, transport = client()
    asking = asyncio.create_task(one.ask("q?", **{given: fifo}).answer())
    try:
        await until(lambda: set(threading.enumerate()) - before)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    finally:
        os.close(os.open(fifo, os.O_RDWR))  # which ends the wait for somebody who writes
    assert transport.requests == []
