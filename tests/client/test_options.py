import json

import numpy as np
import pytest

from trimodal.client.options import generation_inputs
from trimodal.errors import InvalidArgument


def test_only_what_is_given_becomes_a_tensor():
    assert list(generation_inputs("hé", None, {"max_tokens": None, "stop": ()})) == ["text_input"]
    assert generation_inputs("hé", None, {})["text_input"].tolist() == ["hé".encode()]


NUMBERS = {
    "max_tokens": (np.int32, 5), "temperature": (np.float32, 0.5), "top_p": (np.float32, 1),
    "top_k": (np.int32, 0), "min_p": (np.float32, 0.5), "presence_penalty": (np.float32, -1),
    "frequency_penalty": (np.float32, 2), "repetition_penalty": (np.float32, 1.5),
    "seed": (np.uint64, (1 << 64) - 1), "top_logprobs": (np.int32, 0), "priority": (np.int32, -2),
    "ttft_deadline_ms": (np.int32, 300), "deadline_ms": (np.int32, 5000),
}  # fmt: skip
TEXTS = {"tenant": "acme", "tier": "premium", "cache_control": "no-store", "cache_namespace": "faq"}


def test_types_are_those_of_the_model():
    given = {**{name: value for name, (_, value) in NUMBERS.items()}, **TEXTS, "stop": ["a", "b"]}
    inputs = generation_inputs(None, [{"role": "user", "content": "日"}], given)
    assert json.loads(inputs.pop("messages")[0]) == [{"role": "user", "content": "日"}]
    assert inputs.pop("stop").tolist() == [b"a", b"b"]
    assert {name: inputs.pop(name)[0].decode() for name in TEXTS} == TEXTS
    assert {name: (array.dtype, array.tolist()) for name, array in inputs.items()} == {
        name: (kind, [value]) for name, (kind, value) in NUMBERS.items()
    }
    assert generation_inputs("x", None, {"stop": "one"})["stop"].tolist() == [b"one"]


def test_token_ids_and_biases():
    options = {"stop_token_ids": [1, 2], "logit_bias": {5: -1.5}, "ignore_eos": False, "min_tokens": 3}
    inputs = generation_inputs([7, 8], None, options)
    assert {name: (array.dtype, array.tolist()) for name, array in inputs.items()} == {
        "prompt_token_ids": (np.int32, [7, 8]),
        "min_tokens": (np.int32, [3]),
        "logit_bias": (np.object_, [b'{"5": -1.5}']),
        "ignore_eos": (np.bool_, [False]),
        "stop_token_ids": (np.int32, [1, 2]),
    }
    with pytest.raises(InvalidArgument, match="prompt is x: a whole number"):
        generation_inputs([1, "x"], None, {})


@pytest.mark.parametrize("name", ["prompt", "stop", "tenant", "tier", "cancel_key"])
def test_a_lone_surrogate_is_named(name: str):
    prompt, options = ("\ud800", {}) if name == "prompt" else ("x", {name: "\ud800"})
    with pytest.raises(InvalidArgument, match=f"{name} holds a lone surrogate"):
        generation_inputs(prompt, None, options)  # type: ignore[arg-type]


def test_an_unknown_option_is_named():
    with pytest.raises(
        InvalidArgument, match="unknown option 'max_token': add_generation_prompt, .*max_tokens"
    ):
        generation_inputs("x", None, {"max_token": 5})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": "hot"}, "temperature is 'hot': a number is needed"),
        ({"temperature": [1, 2]}, r"temperature is \[1, 2\]: a number is needed"),
        ({"top_p": 10**400}, "top_p is 10+: a number is needed"),
        ({"max_tokens": "5"}, "max_tokens is 5: a whole number from"),
        ({"max_tokens": 1 << 31}, "max_tokens is 2147483648: a whole number"),
        ({"deadline_ms": 1.5}, "deadline_ms is 1.5: a whole number from"),
        ({"seed": -1}, "seed is -1: a whole number from 0"),
    ],
)
def test_a_value_of_another_type_is_named(options: dict[str, object], sentence: str):
    with pytest.raises(InvalidArgument, match=sentence):
        generation_inputs("x", None, options)  # type: ignore[arg-type]


def test_messages_that_json_cannot_hold_are_named():
    with pytest.raises(InvalidArgument, match="messages cannot be written as JSON"):
        generation_inputs(None, [{"role": "user", "content": b"x"}], {})  # type: ignore[typeddict-item]


def test_forms_and_tools_go_as_json():
    form, tools = {"type": "json_object"}, [{"type": "function", "function": {"name": "é"}}]
    choices = {"parallel_tool_calls": False, "apply_chat_template": True}
    asked = {"response_format": form, "tools": tools, "tool_choice": "auto", **choices}
    inputs = generation_inputs("a", None, asked)
    assert json.loads(inputs["response_format"][0]) == form
    assert json.loads(inputs["tools"][0]) == tools
    assert inputs["tool_choice"].tolist() == [b"auto"]
    for name, value in choices.items():
        assert (inputs[name].dtype, inputs[name].tolist()) == (np.bool_, [value])
    assert generation_inputs("a", None, {"response_format": '{"type": "text"}'})[
        "response_format"
    ].tolist() == [b'{"type": "text"}']
    with pytest.raises(InvalidArgument, match="response_format cannot be written as JSON"):
        generation_inputs("a", None, {"response_format": {"a": {1}}})
