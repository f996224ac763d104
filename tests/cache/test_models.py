"""The embedding model and the judge behind blocking calls of other models, on a fake stub."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cache.doubles import TritonStub
from tests.doubles.pb_utils import TritonError
from trimodal.cache.models import embed, judge
from trimodal.errors import InternalError, InvalidArgument, RequestError, Unavailable


def test_a_text_goes_out_and_a_unit_vector_comes_back():
    handed_over = np.array([[3.0, 4.0]], np.float32)
    stub = TritonStub(handed_over)
    vector = embed(stub, "other", "sha", "naïve")
    np.testing.assert_allclose(vector, [0.6, 0.8])
    assert (vector.dtype, vector.shape) == (np.float32, (2,))
    assert not np.shares_memory(vector, handed_over)
    (asked,) = stub.asked
    assert (asked["model_name"], asked["requested_output_names"]) == ("other", ["embedding"])
    assert asked["parameters"] == {"checkpoint_sha256": "sha"}
    (sent,) = asked["inputs"]
    assert (sent.name(), sent.as_numpy().tolist()) == ("text_input", [["naïve".encode()]])


@pytest.mark.parametrize("vector", [[[0.0, 0.0]], [[np.nan, 1.0]], [[np.inf, 1.0]], [[]]])
def test_a_vector_without_a_direction_is_an_error(vector):
    with pytest.raises(InternalError, match="other: the embedding has no direction"):
        embed(TritonStub(np.array(vector, np.float32)), "other", "sha", "x")


def column(same):
    return np.array(same, np.float32).reshape(-1, 1)


def test_pairs_go_out_in_one_batch_the_shorter_question_first():
    stub = TritonStub(column([0.7, 0.1, 0.4]))
    same = judge(stub, "other", "sha", [("naïve", "b"), ("c", "naïve"), ("de", "ab")])
    assert same == pytest.approx([0.7, 0.1, 0.4])
    (asked,) = stub.asked
    assert (asked["model_name"], asked["requested_output_names"]) == ("other", ["same"])
    assert asked["parameters"] == {"checkpoint_sha256": "sha"}
    sent = {
        tensor.name(): [row[0].decode() for row in tensor.as_numpy().tolist()] for tensor in asked["inputs"]
    }
    assert sent == {"question": ["b", "c", "ab"], "other": ["naïve", "naïve", "de"]}


@pytest.mark.parametrize("same", [[], [np.nan], [1.1], [-0.1], [0.5, 0.5]])
def test_what_are_no_probabilities_is_an_error(same):
    with pytest.raises(InternalError, match="other: "):
        judge(TritonStub(column(same)), "other", "sha", [("a", "b")])


@pytest.mark.parametrize(
    ("ask", "told", "code", "kind"),
    [
        (embed, "text_input: nothing in it that the model can read", TritonError.INTERNAL, InvalidArgument),
        (embed, "Request for unknown model: 'other' is not found", TritonError.INTERNAL, InternalError),
        (embed, "the queue is full", TritonError.UNAVAILABLE, Unavailable),
        (judge, "question: 9000 bytes; at most 8192 are accepted", TritonError.INTERNAL, InvalidArgument),
    ],
)
def test_an_error_keeps_its_kind_and_names_the_model(ask, told, code, kind):
    with pytest.raises(RequestError, match="other: ") as caught:
        ask(TritonStub(error=TritonError(told, code)), "other", "sha", "x" if ask is embed else [("a", "b")])
    assert type(caught.value) is kind
