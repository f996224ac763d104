"""The loop of the batching models, every model.py's size and imports, the llm's glue on a fake stub."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doubles import pb_utils
from tests.doubles.pb_utils import InferenceRequest, TritonError
from tests.llm.doubles.sinks import eventually
from trimodal.errors import InvalidArgument, SettingsError, Unavailable
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.responses import error_response, stream_error_response

REPOSITORY = Path(__file__).parents[2] / "model_repository"
GLUE = sorted(REPOSITORY.glob("*/1/model.py"))
FAKE = {"engine": "fake", "fake_step_ms": "1", "fake_prefill_us": "0", "cancel_poll_ms": "2"}


class Asked(str):
    """A request that is its own id."""

    def request_id(self) -> str:
        return self

    def parameters(self) -> str:
        return '{"probe": true}' if self == "probe" else '{"policy": "\\"probe\\""}'


def read(request: str) -> str:
    if request == "unreadable":
        raise InvalidArgument("x: unreadable")
    if request == "surprise":
        raise KeyError("/a/path")
    return request


def write(result: Any) -> list[pb_utils.Tensor]:
    return [pb_utils.Tensor("out", result)]


def answers(requests: list[Any], serve: Any, write: Any = write, read: Any = read) -> list[Any]:
    """The output or the error (code and sentence) of each request."""
    asked = [Asked(one) for one in requests]
    responses = answer_batch(pb_utils, asked, read, serve, write)
    return [(one.error.code, str(one.error)) if one.error else one.outputs["out"] for one in responses]


def test_a_probe_is_answered_before_it_is_read():
    def serve(values):
        assert values == ["a"]
        return values

    one, two = answer_batch(pb_utils, [Asked("probe"), Asked("a")], read, serve, write)
    assert (one.error, one.outputs) == (None, {})
    assert two.outputs["out"] == "a"


def test_each_request_gets_its_own_answer_in_order(caplog):
    def serve(values):
        return [Unavailable("later") if value == "busy" else value.upper() for value in values]

    assert answers(["a", "unreadable", "busy", "surprise", "b"], serve) == [
        "A",
        (TritonError.INVALID_ARG, "x: unreadable"),
        (TritonError.UNAVAILABLE, "later"),
        (TritonError.INTERNAL, "the model failed on this request; the server's log says why"),
        "B",
    ]
    (record,) = caplog.records
    assert (record.request_id, record.levelname) == ("surprise", "ERROR")
    assert "/a/path" in caplog.text


def test_a_failing_service_answers_every_request(caplog):
    def serve(values):
        raise RuntimeError("secret")

    told = answers(["a", "unreadable", "b"], serve)
    assert [code for code, _ in told] == [TritonError.INTERNAL, TritonError.INVALID_ARG, TritonError.INTERNAL]
    assert "secret" not in str(told)
    assert "secret" in caplog.text


def test_a_service_that_loses_a_result_is_an_error_for_all(caplog):
    told = answers(["a", "b"], lambda values: values[:1])
    assert [code for code, _ in told] == [TritonError.INTERNAL] * 2
    assert "2 requests were served and 1 results came back" in caplog.text


def test_a_result_that_cannot_be_written_fails_alone(caplog):
    told = answers(
        ["1", "0", "2"],
        lambda values: values,
        write=lambda result: write(1 / result),
        read=int,
    )
    assert told == [1.0, (TritonError.INTERNAL, told[1][1]), 0.5]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("respond", [error_response, stream_error_response])
def test_a_sentence_that_quotes_a_lone_surrogate_is_sent(respond):
    response = respond(pb_utils, InvalidArgument("unknown key '\ud800'"))
    assert response.error.message().endswith("unknown key '\\ud800'")
    assert response.error.code == TritonError.INVALID_ARG


def test_a_stream_says_the_code_in_words():
    assert stream_error_response(pb_utils, Unavailable("full")).error.message() == "UNAVAILABLE: full"


def test_the_version_directory_is_the_loaded_one():
    args = {"model_repository": "/models/vision_rank", "model_version": "2"}
    assert str(version_directory(args)) == "/models/vision_rank/2"


@pytest.mark.parametrize("path", GLUE, ids=lambda path: path.parts[-3])
def test_glue_is_short_and_imports_little(path):
    source = path.read_text()
    assert len(source.splitlines()) <= 80
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add((node.module or "").split(".")[0])
    known = sys.stdlib_module_names | {"numpy", "triton_python_backend_utils", "trimodal"}
    assert names <= known
    assert "trimodal" in names


def test_every_python_model_has_glue():
    assert len(GLUE) == 9


class LlmGlue:
    """The llm's model.py, initialized on the fake engine."""

    def __init__(self, module: Any, **parameters: str) -> None:
        self.model = module.TritonPythonModel()
        config = pb_utils.model_config(FAKE | parameters)
        self.model.initialize(
            {
                "model_config": config,
                "model_name": "llm",
                "model_repository": str(REPOSITORY / "llm"),
                "model_version": "1",
            }
        )

    def ask(self, *requests: InferenceRequest) -> list[pb_utils.ResponseSender]:
        assert self.model.execute(list(requests)) is None, "decoupled models return nothing"
        return [request.sender for request in requests]


@pytest.fixture
def module() -> Iterator[Any]:
    with pb_utils.glue(REPOSITORY / "llm" / "1" / "model.py") as module:
        yield module


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
    assert metric.labels == {"model": "llm", "outcome": "invalid_arg"}
    assert sum(metric.values("increment")) == 3


def test_a_client_that_leaves_gets_a_final_error_and_is_not_looked_at_again(llm):
    leaving, done = llm.ask(prompt(max_tokens=1000), prompt(max_tokens=5))
    eventually(lambda: bool(leaving.responses))
    leaving.cancelled = True
    assert leaving.ended.wait(20)
    assert done.ended.wait(20)
    assert leaving.error().code == TritonError.CANCELLED
    assert (leaving.finals, done.finals) == (1, 1)
    llm.ask(prompt(max_tokens=50))[0].ended.wait(20)  # the watch has gone round many times
    assert (leaving.looks_after_final, done.looks_after_final) == (0, 0)


def test_an_error_in_the_middle_of_an_answer_is_not_final_itself(llm):
    """For a model that called this one, Triton 2.51 would lose it and the end with it."""
    (leaving,) = llm.ask(prompt(max_tokens=1000))
    eventually(lambda: bool(leaving.responses))
    leaving.cancelled = True
    assert leaving.ended.wait(20)
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


def test_a_bad_setting_stops_loading_and_names_itself(module):
    with pytest.raises(SettingsError, match="llm/configs/cpu.pbtxt .*: unknown parameter 'colour'"):
        LlmGlue(module, colour="red")
