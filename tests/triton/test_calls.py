"""Calls inside Triton: what comes back, what their errors become, and how many wait together."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.assistant.doubles import BOUND
from tests.doubles import pb_utils
from tests.doubles.pb_utils import TritonError
from trimodal.assistant.values import Stopped
from trimodal.errors import Cancelled, InternalError, InvalidArgument, Unavailable
from trimodal.triton.calls import Gate, called_error, infer


def never():
    pass


def test_no_more_wait_together_than_set():
    gate = Gate(3)
    lock, go, full = threading.Lock(), threading.Event(), threading.Event()
    inside, most = 0, 0

    def call():
        nonlocal inside, most
        with gate.waiting(never):
            with lock:
                inside += 1
                most = max(most, inside)
                if inside == 3:
                    full.set()
            assert go.wait(BOUND)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    assert full.wait(BOUND)
    go.set()
    for thread in threads:
        thread.join(BOUND)
    assert (most, inside) == (3, 0)


def test_who_need_not_wait_any_more_gives_up_and_errors_free_the_place():
    gate = Gate(1)
    with pytest.raises(OSError, match="x"), gate.waiting(never):
        raise OSError("x")
    with gate.waiting(never), pytest.raises(Stopped), gate.waiting(stop_after(1)):
        pytest.fail("two are in")


def stop_after(looks):
    left = iter(range(looks - 1))

    def check():
        if next(left, None) is None:
            raise Stopped

    return check


@pytest.mark.parametrize(
    ("told", "code", "kind", "sentence"),
    [
        ("INVALID_ARG: max_tokens is 0", TritonError.INTERNAL, InvalidArgument, "max_tokens is 0"),
        ("CANCELLED: the client\nleft", TritonError.INTERNAL, Cancelled, "the client\nleft"),
        ("in ensemble 'vision', image: no file", TritonError.INTERNAL, InvalidArgument, "image: no file"),
        ("image[0]: no file", TritonError.INTERNAL, InvalidArgument, "image[0]: no file"),
        ("speech: 256 streams are open", TritonError.INTERNAL, Unavailable, "speech: 256 streams are open"),
        ("stream 7 was started anew", TritonError.INTERNAL, Cancelled, "stream 7 was started anew"),
        (
            "language: 'Model x is not ready'",
            TritonError.INTERNAL,
            InvalidArgument,
            "language: 'Model x is not ready'",
        ),
        ("language: 'xx'", TritonError.UNKNOWN, InvalidArgument, "language: 'xx'"),
        ("prompt: not the client's", TritonError.INTERNAL, InternalError, "prompt: not the client's"),
        (
            "Failed for execute the inference request. [request id: 7] Exceeds maximum queue size",
            TritonError.INTERNAL,
            Unavailable,
            "Failed for execute the inference request. [request id: 7] Exceeds maximum queue size",
        ),
        ("Request timeout expired", TritonError.INTERNAL, Unavailable, "Request timeout expired"),
        ("no room", TritonError.UNAVAILABLE, Unavailable, "no room"),
        ("images are bad", TritonError.INTERNAL, InternalError, "images are bad"),
        (
            "Stub process 'vision_rank_0_0' is not healthy.",
            TritonError.INTERNAL,
            Unavailable,
            "the process of model 'vision_rank' died: it is loaded again; retry after 2 s",
        ),
        (
            "Model llm - Error when running inference: Failed for execute the inference request. "
            "Model 'llm' is not ready.",
            TritonError.INTERNAL,
            Unavailable,
            "the model 'llm' is not ready; try again later",
        ),
    ],
)
def test_errors_of_called_models_have_their_kind(told, code, kind, sentence):
    error = pb_utils.CalledResponse({}, TritonError(told, code)).error()
    found = called_error(pb_utils, error, ("image", "language"))
    assert (type(found), str(found)) == (kind, sentence)


def test_a_call_gives_the_outputs_flat(monkeypatch):
    def model(inputs):
        assert inputs["text"].tolist() == [[b"x"]]
        return {"a": np.array([[1.0, 2.0]]), "b": np.array([[3]]), "unasked": np.array([[4]])}

    monkeypatch.setitem(pb_utils.MODELS, "other", model)
    out = infer(pb_utils, "other", {"text": np.array([[b"x"]], object)}, ("a", "b"), ())
    assert {name: array.tolist() for name, array in out.items()} == {"a": [1.0, 2.0], "b": [3]}


def test_a_call_that_fails_raises_the_models_error(monkeypatch):
    monkeypatch.setitem(pb_utils.MODELS, "other", lambda inputs: TritonError("text: empty"))
    with pytest.raises(InvalidArgument, match="text: empty"):
        infer(pb_utils, "other", {"text": np.array([[b""]], object)}, ("a",), ("text",))
