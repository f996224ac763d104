import json
from typing import Any
from unittest import mock

import numpy as np
import pytest

from trimodal.errors import InvalidArgument
from trimodal.llm.request.request import GenerationRequest, read_request
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer

SETTINGS = LlmSettings(max_prompt_bytes=1000, max_output_tokens=100, default_max_tokens=10)


def text(value: str | bytes) -> np.ndarray[Any, Any]:
    return np.array([value.encode() if isinstance(value, str) else value], dtype=object)


def read(parameters: dict[str, Any] | None = None, **inputs: Any) -> GenerationRequest:
    return read_request(inputs, parameters or {}, SETTINGS)


def test_a_prompt_with_defaults() -> None:
    request = read(text_input=text("hello"))
    assert request.prompt == "hello"
    assert request.messages is None
    assert (request.sampling.max_tokens, request.sampling.temperature) == (10, 0.0)


def test_a_chat_with_everything() -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    request = read(
        messages=text(json.dumps(messages)),
        max_tokens=np.array([7], dtype=np.int32),
        temperature=np.array([0.5], dtype=np.float32),
        top_p=np.array([0.9], dtype=np.float32),
        top_k=np.array([40], dtype=np.int32),
        min_p=np.array([0.25], dtype=np.float32),
        presence_penalty=np.array([0.5], dtype=np.float32),
        frequency_penalty=np.array([-2], dtype=np.float32),
        repetition_penalty=np.array([1.5], dtype=np.float32),
        seed=np.array([2**64 - 1], dtype=np.uint64),
        stop=np.array([b"a", "é".encode()], dtype=object),
    )
    assert request.messages == tuple(messages)
    assert request.sampling.seed == 2**64 - 1
    assert (request.sampling.min_p, request.sampling.penalties) == (0.25, (0.5, -2.0, 1.5))
    assert request.stops == ("a", "é")


JSON = '{"type": "json_object"}'
TOOLS = '[{"type": "function", "function": {"name": "f"}}]'
CHAT = '[{"role": "user", "content": "a"}]'
BAD = [
    ({}, "neither is given"),
    ({"text_input": text("a"), "messages": text("[]")}, "messages must be a non-empty"),
    (
        {"text_input": text("a"), "messages": text('[{"role": "user", "content": "b"}]')},
        "both are given",
    ),
    ({"text_input": text("")}, "text_input is empty"),
    ({"text_input": text("a" * 1001)}, "text_input has 1001 bytes: at most 1000"),
    ({"text_input": text(b"\xff\xfe")}, "text_input is not valid UTF-8: byte 0"),
    ({"text_input": np.array([b"a", b"b"], dtype=object)}, "text_input holds 2 values"),
    ({"messages": text("{")}, "messages is not valid JSON"),
    ({"messages": text("[" * 900)}, "messages"),
    ({"messages": text('"hi"')}, "non-empty JSON list"),
    ({"messages": text("[1]")}, r"messages\[0\] must be an object"),
    ({"messages": text('[{"role": "king", "content": "a"}]')}, r"messages\[0\].role is 'king'"),
    ({"messages": text('[{"role": "user"}]')}, r"messages\[0\].content must be a string"),
    ({"messages": text('[{"role": "user", "content": [1]}]')}, "content must be a string"),
    ({"messages": text('[{"role": "user", "content": "a", "x": 1}]')}, "unknown key 'x'"),
    ({"messages": text('[{"role": "user", "content": "\\ud800"}]')}, "messages holds a lone surrogate"),
    (
        {"messages": text(CHAT), "chat_template_kwargs": text('{"a": "\\udc00"}')},
        "chat_template_kwargs holds a lone surrogate",
    ),
    (
        {"messages": text(CHAT), "response_format": text(JSON.replace("{", '{"a": "\\ud800",', 1))},
        "response_format holds a lone surrogate",
    ),
    (
        {
            "messages": text(CHAT),
            "tools": text('[{"type": "function", "function": {"name": "f", "description": "\\ud800"}}]'),
        },
        "tools holds a lone surrogate",
    ),
    (
        {"prompt_token_ids": np.array([1], np.int32), "apply_chat_template": np.array([True])},
        "apply_chat_template is true beside prompt_token_ids",
    ),
    ({"text_input": text("a"), "max_tokens": np.array([0], dtype=np.int32)}, "max_tokens is 0"),
    ({"text_input": text("a"), "max_tokens": np.array([-1], dtype=np.int32)}, "max_tokens is -1"),
    ({"text_input": text("a"), "max_tokens": np.array([101], dtype=np.int32)}, "between 1 and 100"),
    ({"text_input": text("a"), "max_tokens": np.array([], dtype=np.int32)}, "max_tokens holds 0 values"),
    ({"text_input": text("a"), "temperature": np.array([np.nan], dtype=np.float32)}, "temperature is nan"),
    ({"text_input": text("a"), "temperature": np.array([-1], dtype=np.float32)}, "temperature is -1"),
    (
        {"text_input": text("a"), "temperature": np.array([10.000001], dtype=np.float32)},
        "temperature is 10.000001: it must be between 0 and 10",
    ),
    ({"text_input": text("a"), "temperature": np.array([np.inf], dtype=np.float32)}, "temperature is inf"),
    ({"text_input": text("a"), "top_p": np.array([0], dtype=np.float32)}, "top_p is 0"),
    ({"text_input": text("a"), "top_p": np.array([1.5], dtype=np.float32)}, "top_p is 1.5"),
    ({"text_input": text("a"), "top_k": np.array([-2], dtype=np.int32)}, "top_k is -2"),
    ({"text_input": text("a"), "min_p": np.array([1.5], dtype=np.float32)}, "min_p is 1.5"),
    ({"text_input": text("a"), "presence_penalty": np.array([-3], np.float32)}, "presence_penalty is -3"),
    ({"text_input": text("a"), "frequency_penalty": np.array([9], np.float32)}, "frequency_penalty is 9"),
    ({"text_input": text("a"), "repetition_penalty": np.array([0], np.float32)}, "repetition_penalty is 0"),
    ({"text_input": text("a"), "response_format": text("{}")}, "response_format: type is None"),
    ({"text_input": text("a"), "response_format": text("x" * 70_000)}, "response_format has 70000 bytes"),
    ({"text_input": text("a"), "prompt_token_ids": np.array([1], np.int32)}, "both are given"),
    ({"prompt_token_ids": np.array([], np.int32)}, "prompt_token_ids is empty"),
    ({"prompt_token_ids": np.array([3, -1], np.int32)}, "prompt_token_ids has -1"),
    ({"prompt_token_ids": np.zeros(1001, np.int32)}, "prompt_token_ids holds 1001 values: at most 1000"),
    ({"text_input": text("a"), "stop_token_ids": np.array([-1], np.int32)}, "stop_token_ids has -1"),
    ({"text_input": text("a"), "logit_bias": text("[1]")}, "logit_bias must be a JSON object"),
    ({"text_input": text("a"), "logit_bias": text('{"a": 1}')}, "logit_bias has 'a': token ids"),
    ({"text_input": text("a"), "logit_bias": text('{"1": 101}')}, "logit_bias of token 1 is 101"),
    ({"text_input": text("a"), "logit_bias": text('{"1": true}')}, "logit_bias of token 1 is True"),
    ({"text_input": text("a"), "continue_final_message": np.array([True])}, "continue_final_message needs"),
    (
        {"messages": text(CHAT), "continue_final_message": np.array([True]),
         "add_generation_prompt": np.array([True])},
        "continue_final_message is given beside",
    ),
    ({"messages": text(CHAT), "chat_template_kwargs": text("[]")}, "chat_template_kwargs must be"),
    ({"messages": text(CHAT), "chat_template_kwargs": text('{"tools": 1}')}, "kwargs has 'tools'"),
    ({"text_input": text("a"), "tools": text(TOOLS)}, "tools needs messages"),
    ({"text_input": text("a"), "tool_choice": text("required")}, "tool_choice is given without tools"),
    ({"messages": text(CHAT), "tools": text(TOOLS), "tool_choice": text("f")}, "tool_choice is 'f'"),
    ({"text_input": text("a"), "stop": np.array([b"x"] * 9, dtype=object)}, "stop holds 9 strings: at most"),
    ({"text_input": text("a"), "stop": text("")}, "stop holds a string of 0 bytes"),
    ({"text_input": text("a"), "top_logprobs": np.array([21], np.int32)}, "top_logprobs is 21: .* 0 and 20"),
    ({"text_input": text("a"), "top_logprobs": np.array([-1], np.int32)}, "top_logprobs is -1"),
    ({"text_input": text("a"), "stop": text(b"\xff")}, "stop is not valid UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_names_the_field_and_the_limit(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(**inputs)


def test_an_unknown_parameter_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="unknown parameter 'max_token'"):
        read({"max_token": 5}, text_input=text("a"))


@pytest.mark.parametrize(("sent", "taken"), [(1e-45, 0.0), (9e-6, 0.0), (0.0, 0.0), (0.25, 0.25)])
def test_a_temperature_too_small_to_divide_by_is_greedy(sent: float, taken: float) -> None:
    request = read(text_input=text("a"), temperature=np.array([sent], dtype=np.float32))
    assert request.sampling.temperature == taken


def test_a_form_and_tools_become_a_grammar() -> None:
    assert read(text_input=text("a")).sampling.grammar == ""
    assert read(text_input=text("a"), response_format=text(JSON)).sampling.grammar.startswith(
        "root ::= object"
    )
    request = read(messages=text(CHAT), tools=text(TOOLS), tool_choice=text("required"))
    assert "<tool_call>" in request.sampling.grammar
    assert [one["function"]["name"] for one in request.tools.offered] == ["f"]
    silent = read(messages=text(CHAT), tools=text(TOOLS), tool_choice=text("none"))
    assert (silent.sampling.grammar, silent.tools.offered) == ("", ())
    one = read(messages=text(CHAT), tools=text(TOOLS), parallel_tool_calls=np.array([False]))
    assert one.tools.parallel is False


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("asked", [None, True, False])
def test_a_bare_prompt_goes_through_the_template_as_its_request_or_the_model_says(
    default: bool, asked: bool | None
) -> None:
    given = {} if asked is None else {"apply_chat_template": np.array([asked])}
    request = read(text_input=text("a"), **given)
    ids = request.token_ids(ByteTokenizer(), default)
    templated = default if asked is None else asked
    assert ids == ByteTokenizer().encode(
        ByteTokenizer().render(({"role": "user", "content": "a"},), ()) if templated else "a"
    )


def test_a_template_that_is_asked_for_and_is_not_there_is_told() -> None:
    request = read(text_input=text("a"), apply_chat_template=np.array([True]))
    plain = mock.Mock(spec=ByteTokenizer, has_chat_template=False)
    with pytest.raises(InvalidArgument, match="apply_chat_template: this model has no chat template"):
        request.token_ids(plain, True)


def test_a_chat_is_never_raw() -> None:
    assert read(messages=text(CHAT), apply_chat_template=np.array([True])).messages
    with pytest.raises(InvalidArgument, match="apply_chat_template is false beside messages"):
        read(messages=text(CHAT), apply_chat_template=np.array([False]))


def test_log_probabilities_are_asked_for_by_a_number_also_by_none() -> None:
    asked = [read(text_input=text("a"), top_logprobs=np.array([top], np.int32)) for top in (0, 20)]
    assert [request.sampling.logprobs for request in asked] == [0, 20]
    assert read(text_input=text("a")).sampling.logprobs is None


def test_where_an_answer_ends_and_what_is_biased() -> None:
    request = read(
        messages=text(CHAT), min_tokens=np.array([2], np.int32), ignore_eos=np.array([True]),
        stop_token_ids=np.array([7, 9], np.int32), logit_bias=text('{"5": -100, "6": 1.5}'),
        top_k=np.array([-1], np.int32),
    )  # fmt: skip
    sampling = request.sampling
    assert (sampling.min_tokens, sampling.ignore_eos, sampling.stop_token_ids) == (2, True, (7, 9))
    assert sampling.logit_bias == {5: -100.0, 6: 1.5}
    assert sampling.top_k == 0
    request = read(messages=text(CHAT), response_format=text(JSON), stop=text("x"))
    assert (request.stops, bool(request.sampling.grammar)) == (("x",), True)


BEGUN = '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]'
CALLED = '[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]'


@pytest.mark.parametrize(
    ("chat", "given", "rendered"),
    [
        (CHAT, {}, "user: a\nassistant: "),
        (CHAT, {"add_generation_prompt": False}, "user: a\n"),
        (CHAT, {"continue_final_message": True}, "user: a"),
        (BEGUN, {}, "user: a\nassistant: b"),
        (BEGUN, {"add_generation_prompt": True}, "user: a\nassistant: b\nassistant: "),
        (BEGUN, {"add_generation_prompt": False}, "user: a\nassistant: b\n"),
        (BEGUN, {"continue_final_message": False}, "user: a\nassistant: b\nassistant: "),
    ],
)
def test_where_the_prompt_of_a_chat_ends(chat: str, given: dict[str, bool], rendered: str) -> None:
    request = read(messages=text(chat), **{name: np.array([value]) for name, value in given.items()})
    assert bytes(request.token_ids(ByteTokenizer(), apply_chat_template=True)).decode() == rendered


def test_an_assistant_that_has_called_is_not_continued() -> None:
    assert not read(messages=text(CALLED)).rendering.continue_final_message
