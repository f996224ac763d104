"""The llm over gRPC: its answers, its errors with their codes, and calls that end when they are cancelled."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest

from tests.assistant.doubles import BOUND
from tests.assistant.endpoint import Endpoint
from tests.doubles import pb_utils
from trimodal.assistant.llm_connection import LlmConnection
from trimodal.assistant.models import Models
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import Stopped
from trimodal.client.transports.fake import llm_outputs
from trimodal.errors import Cancelled, InternalError, ModelNotFound, Unavailable
from trimodal.paths import ADDRESS_VARIABLE

QUESTION = {"text_input": np.array([b"q"], object), "max_tokens": np.array([7], np.int32)}


def never(stop):
    return nullcontext()


@pytest.fixture
def endpoint():
    made = []

    def make(answer):
        made.append(Endpoint(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


def models(endpoint):
    return Models(pb_utils, AssistantSettings(grpc_address=endpoint.address))


def test_an_answer_streams_and_its_last_piece_has_a_note(endpoint):
    def llm(inputs):
        note = {"cache": np.array([b"exact"], object), "queue_ms": np.array([2.5], np.float32)}
        yield llm_outputs("é") | {"logprobs": np.array([b"[]"], object)}
        yield llm_outputs("", "stop") | note
        yield {}  # as the empty final response

    served = endpoint(llm)
    first, last = models(served).answer(QUESTION, never)
    usage = {"prompt_tokens": 8, "cached_tokens": 0, "completion_tokens": 1}
    assert (first.text, first.finish_reason) == ("é", "")
    said = {"text_output": "é".encode(), "finish_reason": b"", "logprobs": b"[]"}
    assert {name: array[0] for name, array in first.columns.items()} == {**said, **usage}
    told = {"text_output": b"", "finish_reason": b"stop", "cache": b"exact", "queue_ms": 2.5}
    assert {name: array[0] for name, array in last.columns.items()} == {**told, **usage}
    (asked,) = served.asked
    assert {name: array.tolist() for name, array in asked.items()} == {
        "text_input": [b"q"],
        "max_tokens": [7],
    }


def test_an_error_in_the_middle_has_its_code(endpoint):
    def llm(inputs):
        yield llm_outputs("so far")
        yield "UNAVAILABLE: the queue is full; retry after 0.4 s"

    pieces = models(endpoint(llm)).answer(QUESTION, never)
    assert next(pieces).text == "so far"
    with pytest.raises(Unavailable, match="the queue is full") as caught:
        next(pieces)
    assert caught.value.retry_after_s == 0.4


def test_cancelling_ends_the_call_at_the_server_and_no_other(endpoint):
    go = threading.Event()

    def llm(inputs):
        yield llm_outputs("first")
        assert go.wait(BOUND)
        yield llm_outputs("", "stop")

    served = endpoint(llm)
    line = models(served)
    stops = []
    one, other = (line.answer(QUESTION, lambda stop: nullcontext(stops.append(stop))) for _ in range(2))
    assert (next(one).text, next(other).text) == ("first", "first")
    stops[0]()
    with pytest.raises(Cancelled):
        next(one)
    assert served.ended.wait(BOUND)
    stops[0]()
    go.set()
    assert next(other).finish_reason == "stop"


def test_one_that_was_stopped_before_it_began_ends(endpoint):
    def over(stop):
        raise Stopped

    served = endpoint(lambda inputs: iter([llm_outputs("a")]))
    with pytest.raises(Stopped):
        next(models(served).answer(QUESTION, over))


def test_an_endpoint_that_is_not_there():
    line = LlmConnection("127.0.0.1:1", "llm")
    with pytest.raises(InternalError, match="the server's own gRPC endpoint 127.0.0.1:1 fails: no server at"):
        next(line.answer(QUESTION, never))


def test_where_it_is_comes_from_the_server_that_started_the_process(endpoint, monkeypatch):
    served = endpoint(lambda inputs: iter([llm_outputs("a", "stop")]))
    monkeypatch.setenv(ADDRESS_VARIABLE, served.address)
    assert next(LlmConnection("", "llm").answer(QUESTION, never)).text == "a"


def test_only_a_traced_answer_asks_the_llm_for_its_trace(endpoint):
    def llm(inputs):
        told = {"trace": np.array([b'[{"name": "queue"}]'], object)} if served.parameters[-1] else {}
        yield llm_outputs("all", "stop") | told

    served = endpoint(llm)
    (plain,) = models(served).answer(QUESTION, never)
    (traced,) = models(served).answer(QUESTION, never, trace=True, request_id="mine")
    assert served.parameters == [{}, {"trace": True}]
    assert served.ids == ["", "mine"]
    assert "trace" not in plain.columns
    assert traced.columns["trace"][0] == b'[{"name": "queue"}]'


def test_a_version_that_is_named_is_asked_and_one_that_is_not_there_is_no_fault_of_the_request(endpoint):
    def llm(inputs):
        missing = "Request for unknown model: 'llm' version 3 is not found"
        yield missing if served.models[-1][1] == "3" else llm_outputs("a", "stop")

    served = endpoint(llm)
    for versions in ({"llm": "2", "speech": "5"}, {}):
        assert next(models(served).answer(QUESTION, never, versions)).text == "a"
    with pytest.raises(Unavailable, match="the server has no model 'llm' version 3; try again later"):
        next(models(served).answer(QUESTION, never, {"llm": "3"}))
    assert served.models == [("llm", "2"), ("llm", ""), ("llm", "3")]


def test_a_version_that_is_not_there_is_told_with_those_that_are(endpoint, monkeypatch):
    retired = "Request for unknown model: 'llm' version 3 is not at ready state"
    served = endpoint(lambda inputs: iter([retired]))
    with pytest.raises(
        Unavailable, match="is not ready: it is being loaded again, or was unloaded"
    ):  # the index is for operators: it may come
        next(models(served).answer(QUESTION, never, {"llm": "3"}))
    ready = [("llm", "1", "READY"), ("llm", "2", "READY"), ("vision", "4", "READY")]
    served.states = [*ready, ("llm", "3", "LOADING")]
    with pytest.raises(Unavailable, match="is not ready: it is being loaded again, or was unloaded"):
        next(models(served).answer(QUESTION, never, {"llm": "3"}))
    served.states = [*ready, ("llm", "3", "UNAVAILABLE")]
    with pytest.raises(ModelNotFound, match="the server has no model 'llm' version 3, only 1, 2"):
        next(models(served).answer(QUESTION, never, {"llm": "3"}))
    refusal = pb_utils.TritonError("Model 'vision' is not ready.", pb_utils.TritonError.INTERNAL)
    monkeypatch.setitem(pb_utils.MODELS, "vision", lambda inputs: refusal)
    with pytest.raises(ModelNotFound, match="the server has no model 'vision' version 3, only 4"):
        models(served).see(b"a file", never, {"vision": "3"})
    for version in ("", "4"):  # it is being loaded again
        with pytest.raises(Unavailable, match="the model 'vision' is not ready; try again later"):
            models(served).see(b"a file", never, {"vision": version})
