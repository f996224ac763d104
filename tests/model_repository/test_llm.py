"""The glue of llm on a fake stub and a fake engine: every request gets one final response."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doubles import pb_utils
from tests.doubles.pb_utils import InferenceRequest, TritonError
from tests.llm.doubles.sinks import eventually

MODEL = Path(__file__).parents[2] / "model_repository" / "llm"
FAKE = {"engine": "fake", "fake_step_ms": "1", "fake_prefill_us": "0", "cancel_poll_ms": "2"}


class LlmGlue:
    """The llm's model.py, initialized on the fake engine."""

    def __init__(self, module: Any, **parameters: str) -> None:
        self.model = pb_utils.initialized(module, MODEL, FAKE | parameters)

    def ask(self, *requests: InferenceRequest) -> list[pb_utils.ResponseSender]:
        assert self.model.execute(list(requests)) is None, "decoupled models return nothing"
        return [request.sender for request in requests]


@pytest.fixture
def llm(module: Any) -> Iterator[LlmGlue]:
    llm = LlmGlue(module)
    yield llm
    llm.model.finalize()


def prompt(text: bytes = b"hello", max_tokens: int = 20, **parameters: Any) -> InferenceRequest:
    inputs = {
        "text_input": np.array([text], object),
        "max_tokens": np.array([max_tokens], np.int32),
    }
    return InferenceRequest(inputs, parameters)


def test_an_answer_ends_with_its_only_final_response(llm):
    (sender,) = llm.ask(prompt())
    assert sender.ended.wait(20)
    last = sender.responses[-1].outputs
    assert sender.finals == 1
    assert last["finish_reason"].tolist() == [b"length"]
    assert last["completion_tokens"].tolist() == [20]
    assert last["completion_tokens"].dtype == np.int32
    assert {one.outputs["finish_reason"][0] for one in sender.responses[:-1]} <= {b""}
    text = b"".join(one.outputs["text_output"][0] for one in sender.responses)
    assert len(text.decode()) > 5


def test_an_answer_that_does_not_stream_is_one_final_response(llm):
    (whole,) = llm.ask(prompt(stream=False, exclude_input_in_output=False))
    (streamed,) = llm.ask(prompt())
    assert whole.ended.wait(20)
    assert streamed.ended.wait(20)
    (only,) = whole.responses
    text = b"".join(one.outputs["text_output"][0] for one in streamed.responses)
    assert only.outputs["text_output"].tolist() == [b"hello" + text]
    assert only.outputs["completion_tokens"].tolist() == [20]
    (refused,) = llm.ask(prompt(exclude_input_in_output=False))
    assert (
        refused.error().message().endswith("exclude_input_in_output is false: stream must be false with it")
    )


def test_a_refusal_is_final_and_leaves_the_others_alone(llm):
    refused, served, unknown = llm.ask(prompt(b""), prompt(), prompt(colour="red"))
    assert refused.ended.is_set()
    assert refused.finals == 1
    assert refused.error().message() == "INVALID_ARG: text_input is empty: at least one character is needed"
    assert refused.error().code == TritonError.INVALID_ARG
    assert "unknown parameter 'colour'" in unknown.error().message()
    assert served.ended.wait(20)
    assert served.error() is None


class Surprise(InferenceRequest):
    """A request whose parameters cannot be read."""

    def parameters(self) -> str:
        raise OSError("/secret/path")


@pytest.mark.parametrize(
    "request_",
    [
        Surprise({}),
        InferenceRequest({"text_input": np.array(5)}),
        InferenceRequest({"text_input": np.array([object()])}),
    ],
    ids=["parameters", "a number for a text", "an object for a text"],
)
def test_an_exception_anywhere_in_execute_is_a_final_error(llm, request_, caplog):
    (sender,) = llm.ask(request_)
    assert sender.finals == 1
    assert sender.error().code == TritonError.INTERNAL
    assert sender.error().message() == "INTERNAL: the model failed on this request; the server's log says why"
    assert "Traceback" in caplog.text


def test_every_refusal_is_counted_wherever_it_is_found(module):
    pb_utils.MetricFamily.families.clear()
    llm = LlmGlue(module)
    for sender in llm.ask(prompt(b""), prompt(colour="red"), prompt(b"x" * 5000)):
        assert sender.ended.wait(20)
    llm.model.finalize()
    (family,) = [one for one in pb_utils.MetricFamily.families if one.name.endswith("_requests_total")]
    (metric,) = family.metrics
    assert metric.labels == {"model": "llm", "version": "1", "outcome": "invalid_arg"}
    assert sum(metric.values("increment")) == 3


def test_an_error_in_the_middle_of_an_answer_is_not_final_itself(llm):
    """For a model that called this one, Triton 2.51 would lose it and the end with it."""
    leaving, done = llm.ask(prompt(max_tokens=1000), prompt(max_tokens=5))
    eventually(lambda: bool(leaving.responses))
    leaving.cancelled = True
    assert leaving.ended.wait(20)
    assert done.ended.wait(20)
    assert leaving.error().code == TritonError.CANCELLED
    llm.ask(prompt(max_tokens=50))[0].ended.wait(20)  # the watch has gone round many times
    assert (leaving.looks_after_final, done.looks_after_final) == (0, 0)
    assert leaving.flags[-2:] == [0, 1]
    assert leaving.responses[-1].error.message() == "CANCELLED: the client cancelled the request"
    (refused,) = llm.ask(prompt(b""))
    assert refused.flags == [1], "as the first response it has to be"


def test_finalize_ends_what_runs_and_carries_the_metrics_over(module):
    llm = LlmGlue(module)
    (sender,) = llm.ask(prompt(max_tokens=1000))
    eventually(lambda: bool(sender.responses))
    llm.model.finalize()
    assert sender.finals == 1
    assert sender.error().message() == "UNAVAILABLE: the server is shutting down"
    families = {family.name: family for family in pb_utils.MetricFamily.families}
    assert families["trimodal_llm_requests_total"].metrics[0].values("increment") == [1]
    assert families["trimodal_llm_active_requests"].metrics[0].values("set")[-1] == 0
