import json
import math
from dataclasses import replace

import numpy as np
import pytest

from trimodal.client import Client, FakeTransport, ProtocolError
from trimodal.client.decoding import read
from trimodal.client.transports.fake import llm_outputs, scripted, speech_outputs
from trimodal.client.transports.tensors import strings
from trimodal.client.values import TokenLogprob


def note(**changes):
    return {
        "cache": strings([b"semantic"]),
        "similarity": np.array([0.5], np.float32),
        "trimmed": strings([b'{"messages": 4, "tokens": 81}']),
        "queue_ms": np.array([2.5], np.float32),
        "predicted_ttft_ms": np.array([40], np.float32),
    } | changes


def client(last):
    async def llm(request):
        yield llm_outputs("Hi")
        yield llm_outputs("", "stop") | last

    return Client(transport=FakeTransport(llm=llm))


async def test_the_last_response_says_how_the_answer_came_about():
    answer = await client(note()).complete("hello")
    assert answer.note.cache == "semantic"
    assert answer.note.similarity == 0.5
    assert answer.note.trimmed == {"messages": 4, "tokens": 81}
    assert (answer.note.queue_ms, answer.note.predicted_ttft_ms) == (2.5, 40)


async def test_a_ttft_that_was_not_foreseen_is_nan():
    answer = await client(note(predicted_ttft_ms=np.array([-1], np.float32))).complete("hello")
    assert math.isnan(answer.note.predicted_ttft_ms)


async def test_a_server_that_says_nothing_of_it_is_fine():
    answer = await client({}).complete("hello")
    assert (answer.note.cache, dict(answer.note.trimmed)) == ("", {})
    assert math.isnan(answer.note.predicted_ttft_ms)


@pytest.mark.parametrize(
    "damage",
    [
        {"trimmed": strings([b"{"])},
        {"trimmed": strings([b"[1]"])},
        {"trimmed": strings([b'{"turns": Infinity}'])},
        {"trimmed": strings([b"[" * 5000])},
        {"trimmed": strings([b'{"turns": "' + b"x" * 5000 + b'"}'])},
        {"similarity": np.array([], np.float32)},
        {"cache": strings([b"\xff"])},
    ],
)
async def test_a_note_that_cannot_be_read_is_a_protocol_error(damage):
    with pytest.raises(ProtocolError, match="the answer of the llm model cannot be read") as caught:
        await client(note(**damage)).complete("hello")
    assert len(str(caught.value)) < 200


async def test_cancel_asks_for_the_request_with_that_key():
    keys = []

    async def llm(request):
        keys.append(bytes(request.inputs["cancel"][0]))
        yield llm_outputs("", "cancelled" if len(keys) == 1 else "not_found")

    asking = Client(transport=FakeTransport(llm=llm))
    assert await asking.cancel("k" * 16)
    assert not await asking.cancel("k" * 16)
    assert keys == [b"k" * 16] * 2


async def test_log_probabilities_come_with_their_text():
    stream = Client(transport=FakeTransport(llm=scripted("one twö"))).stream("x", top_logprobs=2)
    deltas = [delta async for delta in stream]
    assert [[one.token for one in delta.logprobs] for delta in deltas] == [["one"], [" twö"]]
    answer = await Client(transport=FakeTransport(llm=scripted("one twö"))).complete("x", top_logprobs=2)
    assert answer.logprobs == tuple(one for delta in deltas for one in delta.logprobs)
    last = answer.logprobs[1]
    assert (last.bytes, last.logprob) == (" twö".encode(), -0.25)
    assert last.top == (replace(last, top=()), TokenLogprob("?", b"?", -1.25))
    plain = await Client(transport=FakeTransport(llm=scripted("one twö"))).complete("x")
    assert plain.logprobs == ()


@pytest.mark.parametrize(
    "told", [b"", b"{", b"[1]", b'[{"token": "a"}]', b'[{"token": "a", "bytes": [300], "logprob": 0}]']
)
async def test_log_probabilities_that_cannot_be_read(told):
    with pytest.raises(ProtocolError, match="the llm model"):
        await client({**note(), "logprobs": strings([told])}).complete("x")


@pytest.mark.parametrize(
    "changes",
    [
        {"first": -1},
        {"count": 0},
        {"count": "two"},
        {"words": [{"text": "a"}]},
        {"words": [{"text": "a", "start": None, "end": 1, "probability": 1, "tokens": []}]},
        {"words": 1},
    ],
)
def test_corrections_that_cannot_be_read(changes):
    told = {"first": 0, "count": 1, "words": [], **changes}
    outputs = speech_outputs() | {"corrections": strings([json.dumps(told).encode()])}
    with pytest.raises(ProtocolError, match="the speech model cannot be read"):
        read(outputs)
