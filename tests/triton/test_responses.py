"""A stream's responses: what is sent, and what is made anew for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.doubles import pb_utils
from trimodal.triton.responses import ResponseStream


class Counted:
    """Triton's module, which notes the tensors that are made."""

    InferenceResponse = pb_utils.InferenceResponse
    TRITONSERVER_RESPONSE_COMPLETE_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

    def __init__(self) -> None:
        self.made: list[str] = []

    def Tensor(self, name: str, values: Any) -> pb_utils.Tensor:
        self.made.append(name)
        return pb_utils.Tensor(name, values)


def columns(text: str, tokens: int, finish: str = "") -> dict[str, Any]:
    return {
        "text": np.array([text.encode()], object),
        "finish": np.array([finish.encode()], object),
        "tokens": np.array([tokens], np.int32),
    }


def test_a_tensor_that_is_the_same_as_the_last_of_its_name_is_made_once():
    triton, sender = Counted(), pb_utils.ResponseSender()
    stream = ResponseStream(triton, sender)
    given = [columns("a", 1), columns("b", 1), columns("b", 2, "stop")]
    for index, one in enumerate(given):
        stream.respond(one, final=index == 2)

    assert triton.made == ["text", "finish", "tokens", "text", "finish", "tokens"]
    sent = [{name: values.tolist() for name, values in one.outputs.items()} for one in sender.responses]
    assert sent == [{name: values.tolist() for name, values in one.items()} for one in given]
    assert sender.finals == 1


def test_equal_numbers_of_another_type_or_shape_are_another_tensor():
    triton = Counted()
    stream = ResponseStream(triton, pb_utils.ResponseSender())
    for values in (np.array([1], np.int32), np.array([1], np.float32), np.array([[1]], np.float32)):
        stream.respond({"x": values}, final=False)

    assert triton.made == ["x", "x", "x"]
