import json

import numpy as np
import pytest

from trimodal.client.generation import generation_inputs
from trimodal.errors import InvalidArgument


def test_only_what_is_given_becomes_a_tensor():
    assert list(generation_inputs("hé", None, {"max_tokens": None, "stop": ()})) == ["text_input"]
    assert generation_inputs("hé", None, {})["text_input"].tolist() == ["hé".encode()]


def test_types_are_those_of_the_model():
    inputs = generation_inputs(
        None,
        [{"role": "user", "content": "日"}],
        {
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 1,
            "top_k": 0,
            "seed": (1 << 64) - 1,
            "stop": ["a", "b"],
        },
    )
    assert json.loads(inputs["messages"][0]) == [{"role": "user", "content": "日"}]
    kinds = {name: array.dtype for name, array in inputs.items() if name not in ("messages", "stop")}
    assert kinds == {
        "max_tokens": np.int32,
        "temperature": np.float32,
        "top_p": np.float32,
        "top_k": np.int32,
        "seed": np.uint64,
    }
    assert inputs["seed"].tolist() == [(1 << 64) - 1]
    assert inputs["stop"].tolist() == [b"a", b"b"]
    assert generation_inputs("x", None, {"stop": "one"})["stop"].tolist() == [b"one"]


def test_terms_are_tensors_of_the_models_types():
    inputs = generation_inputs(
        "x",
        None,
        {
            "tenant": "acme",
            "tier": "premium",
            "priority": -2,
            "ttft_deadline_ms": 300,
            "deadline_ms": 5000,
            "cache_control": "no-store",
            "cache_namespace": "faq",
            "cancel_key": "k" * 16,
        },
    )
    assert {name: array[0] for name, array in inputs.items() if array.dtype == np.int32} == {
        "priority": -2,
        "ttft_deadline_ms": 300,
        "deadline_ms": 5000,
    }
    assert {name: array[0] for name, array in inputs.items() if array.dtype == object} == {
        "text_input": b"x",
        "tenant": b"acme",
        "tier": b"premium",
        "cache_control": b"no-store",
        "cache_namespace": b"faq",
        "cancel_key": b"k" * 16,
    }


@pytest.mark.parametrize("name", ["tenant", "tier", "cancel_key"])
def test_a_lone_surrogate_is_named(name: str):
    with pytest.raises(InvalidArgument, match=f"{name} holds a lone surrogate"):
        generation_inputs("x", None, {name: "\ud800"})  # type: ignore[misc]
