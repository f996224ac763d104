"""The loop of the batching models, and every model.py's size and imports."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.doubles import pb_utils
from tests.doubles.pb_utils import TritonError
from trimodal import trace
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.triton.batch import answer_batch, version_directory
from trimodal.triton.parameters import check_checkpoint
from trimodal.triton.responses import error_response, stream_error_response

REPOSITORY = Path(__file__).parents[2] / "model_repository"
GLUE = sorted(REPOSITORY.glob("*/1/model.py"))


class RequestDouble(str):
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


def test_a_request_that_wants_its_times_gets_those_of_the_batch() -> None:
    class Wanting(RequestDouble):
        def parameters(self) -> str:
            return json.dumps({"trace": {"yes": True, "no": False, "bad": 7}[self]})

    def serve(values: Any) -> Any:
        trace.note("compute", 1.5, 2.0)
        return [np.zeros((2, 3))] * len(values)

    def told(tells: bool) -> list[Any]:
        asked = [Wanting("yes"), Wanting("no")]
        return answer_batch(pb_utils, asked, read, serve, write, tells=tells)

    yes, no = told(tells=True)
    assert trace.read(yes.outputs) == [{"name": "compute", "begin": 1_500_000_000, "end": 2_000_000_000}]
    assert yes.outputs["trace"].shape == (2, 1), "one for each row"
    assert "trace" not in no.outputs
    assert all("trace" not in one.outputs for one in told(tells=False))
    (bad,) = answer_batch(pb_utils, [Wanting("bad")], read, serve, write, tells=True)
    assert str(bad.error) == "trace is '7': true or false is needed"
    trace.note("compute", 1.0, 2.0)  # nobody gathers: nothing


def answers(requests: list[Any], serve: Any, write: Any = write, read: Any = read) -> list[Any]:
    """The output or the error (code and sentence) of each request."""
    asked = [RequestDouble(one) for one in requests]
    responses = answer_batch(pb_utils, asked, read, serve, write)
    return [(one.error.code, str(one.error)) if one.error else one.outputs["out"] for one in responses]


def test_a_request_may_be_for_one_checkpoint_alone() -> None:
    for parameters in ("", '{"checkpoint_sha256": "abc"}'):
        check_checkpoint(SimpleNamespace(parameters=lambda given=parameters: given), "abc")
    for parameters in ('{"checkpoint_sha256": "abcd"}', '{"checkpoint_sha256": 1}'):
        with pytest.raises(Unavailable, match="^checkpoint_sha256: another checkpoint .* is served, abc$"):
            check_checkpoint(SimpleNamespace(parameters=lambda given=parameters: given), "abc")


def test_a_probe_is_answered_before_it_is_read():
    def serve(values):
        assert values == ["a"]
        return values

    one, two = answer_batch(pb_utils, [RequestDouble("probe"), RequestDouble("a")], read, serve, write)
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
    assert len(GLUE) == 10
