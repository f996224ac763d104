import math
from typing import Any
from unittest import mock

import pytest

from tests.llm.doubles.tensors import tensors
from trimodal.errors import InvalidArgument
from trimodal.llm.request.request import GenerationRequest, read_request
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer

SETTINGS = LlmSettings(max_prompt_bytes=1000, max_output_tokens=100, default_max_tokens=10)


def read(parameters: dict[str, Any] | None = None, **inputs: Any) -> GenerationRequest:
    return read_request(tensors(**inputs), parameters or {}, SETTINGS)


def test_a_prompt_with_defaults() -> None:
    request = read(text_input="hello")
    assert request.prompt == "hello"
    assert request.messages is None
    assert (request.sampling.max_tokens, request.sampling.temperature) == (10, 0.0)


def test_a_chat_with_everything() -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    request = read(
        messages=messages,
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.25,
        presence_penalty=0.5,
        frequency_penalty=-2,
        repetition_penalty=1.5,
        seed=2**64 - 1,
        stop=["a", "é"],
    )
    assert request.messages == tuple(messages)
    assert request.sampling.seed == 2**64 - 1
    assert (request.sampling.min_p, request.sampling.penalties) == (0.25, (0.5, -2.0, 1.5))
    assert request.stops == ("a", "é")


JSON = '{"type": "json_object"}'
TOOLS = '[{"type": "function", "function": {"name": "f"}}]'
CHAT = '[{"role": "user", "content": "a"}]'
BAD = [
    ({}, "none is given"),
    ({"text_input": "a", "messages": "[]"}, "messages must be a non-empty"),
    ({"text_input": "a", "messages": '[{"role": "user", "content": "b"}]'},
     "text_input and messages are given"),
    ({"text_input": ""}, "text_input is empty"),
    ({"text_input": "a" * 1001}, "text_input has 1001 bytes: at most 1000"),
    ({"text_input": b"\xff\xfe"}, "text_input is not valid UTF-8: byte 0"),
    ({"text_input": [b"a", b"b"]}, "text_input holds 2 values"),
    ({"messages": "{"}, "messages is not valid JSON"),
    ({"messages": "[" * 900}, "messages"),
    ({"messages": '"hi"'}, "non-empty JSON list"),
    ({"messages": "[1]"}, r"messages\[0\] must be an object"),
    ({"messages": '[{"role": "king", "content": "a"}]'}, r"messages\[0\].role is 'king'"),
    ({"messages": '[{"role": "user"}]'}, r"messages\[0\].content must be a string"),
    ({"messages": '[{"role": "user", "content": [1]}]'}, "content must be a string"),
    ({"messages": '[{"role": "user", "content": "a", "x": 1}]'}, "unknown key 'x'"),
    ({"messages": '[{"role": "user", "content": "\\ud800"}]'}, "messages holds a lone surrogate"),
    (
        {"messages": CHAT, "chat_template_kwargs": '{"a": "\\udc00"}'},
        "chat_template_kwargs holds a lone surrogate",
    ),
    (
        {"messages": CHAT, "response_format": JSON.replace("{", '{"a": "\\ud800",', 1)},
        "response_format holds a lone surrogate",
    ),
    (
        {
            "messages": CHAT,
            "tools": '[{"type": "function", "function": {"name": "f", "description": "\\ud800"}}]',
        },
        "tools holds a lone surrogate",
    ),
    (
        {"prompt_token_ids": 1, "apply_chat_template": True},
        "apply_chat_template is true beside prompt_token_ids",
    ),
    ({"text_input": "a", "max_tokens": 0}, "max_tokens is 0"),
    ({"text_input": "a", "max_tokens": -1}, "max_tokens is -1"),
    ({"text_input": "a", "max_tokens": 101}, "between 1 and 100"),
    ({"text_input": "a", "max_tokens": []}, "max_tokens holds 0 values"),
    ({"text_input": "a", "temperature": math.nan}, "temperature is nan"),
    ({"text_input": "a", "temperature": -1}, "temperature is -1"),
    (
        {"text_input": "a", "temperature": 10.000001},
        "temperature is 10.000001: it must be between 0 and 10",
    ),
    ({"text_input": "a", "temperature": math.inf}, "temperature is inf"),
    ({"text_input": "a", "top_p": 0}, "top_p is 0"),
    ({"text_input": "a", "top_p": 1.5}, "top_p is 1.5"),
    ({"text_input": "a", "top_k": -2}, "top_k is -2"),
    ({"text_input": "a", "min_p": 1.5}, "min_p is 1.5"),
    ({"text_input": "a", "presence_penalty": -3}, "presence_penalty is -3"),
    ({"text_input": "a", "frequency_penalty": 9}, "frequency_penalty is 9"),
    ({"text_input": "a", "repetition_penalty": 0}, "repetition_penalty is 0"),
    ({"text_input": "a", "response_format": "{}"}, "response_format: type is None"),
    ({"text_input": "a", "response_format": "x" * 70_000}, "response_format has 70000 bytes"),
    ({"text_input": "a", "prompt_token_ids": 1}, "text_input and prompt_token_ids are given"),
    ({"prompt_token_ids": []}, "prompt_token_ids is empty"),
    ({"prompt_token_ids": [3, -1]}, "prompt_token_ids has -1"),
    ({"prompt_token_ids": [0] * 1001}, "prompt_token_ids holds 1001 values: at most 1000"),
    ({"text_input": "a", "stop_token_ids": -1}, "stop_token_ids has -1"),
    ({"text_input": "a", "logit_bias": "[1]"}, "logit_bias must be a JSON object"),
    ({"text_input": "a", "logit_bias": '{"a": 1}'}, "logit_bias has 'a': token ids"),
    ({"text_input": "a", "logit_bias": '{"1": 101}'}, "logit_bias of token 1 is 101"),
    ({"text_input": "a", "logit_bias": '{"1": true}'}, "logit_bias of token 1 is True"),
    ({"text_input": "a", "continue_final_message": True}, "continue_final_message needs"),
    (
        {"messages": CHAT, "continue_final_message": True,
         "add_generation_prompt": True},
        "continue_final_message is given beside",
    ),
    ({"messages": CHAT, "chat_template_kwargs": "[]"}, "chat_template_kwargs must be"),
    ({"messages": CHAT, "chat_template_kwargs": '{"tools": 1}'}, "kwargs has 'tools'"),
    ({"text_input": "a", "tools": TOOLS}, "tools needs messages: text_input is given"),
    ({"prompt_token_ids": 1, "tools": TOOLS}, "tools needs messages: prompt_token_ids is given"),
    ({"text_input": "a", "tool_choice": "required"}, "tool_choice is given without tools"),
    ({"messages": CHAT, "tools": TOOLS, "tool_choice": "f"}, "tool_choice is 'f'"),
    ({"text_input": "a", "stop": ["x"] * 9}, "stop holds 9 strings: at most"),
    ({"text_input": "a", "stop": ""}, "stop holds a string of 0 bytes"),
    ({"text_input": "a", "top_logprobs": 21}, "top_logprobs is 21: .* 0 and 20"),
    ({"text_input": "a", "top_logprobs": -1}, "top_logprobs is -1"),
    ({"text_input": "a", "stop": b"\xff"}, "stop is not valid UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input_names_the_field_and_the_limit(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(**inputs)


def test_an_unknown_parameter_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="unknown parameter 'max_token'"):
        read({"max_token": 5}, text_input="a")


@pytest.mark.parametrize(("sent", "taken"), [(1e-45, 0.0), (9e-6, 0.0), (0.0, 0.0), (0.25, 0.25)])
def test_a_temperature_too_small_to_divide_by_is_greedy(sent: float, taken: float) -> None:
    request = read(text_input="a", temperature=sent)
    assert request.sampling.temperature == taken


def test_a_form_and_tools_become_a_grammar() -> None:
    assert read(text_input="a").sampling.grammar == ""
    assert read(text_input="a", response_format=JSON).sampling.grammar.startswith("root ::= object")
    request = read(messages=CHAT, tools=TOOLS, tool_choice="required")
    assert "<tool_call>" in request.sampling.grammar
    assert [one["function"]["name"] for one in request.tools.offered] == ["f"]
    silent = read(messages=CHAT, tools=TOOLS, tool_choice="none")
    assert (silent.sampling.grammar, silent.tools.offered) == ("", ())
    one = read(messages=CHAT, tools=TOOLS, parallel_tool_calls=False)
    assert one.tools.parallel is False


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("asked", [None, True, False])
def test_a_bare_prompt_goes_through_the_template_as_its_request_or_the_model_says(
    default: bool, asked: bool | None
) -> None:
    given = {} if asked is None else {"apply_chat_template": asked}
    request = read(text_input="a", **given)
    ids = request.token_ids(ByteTokenizer(), default)
    templated = default if asked is None else asked
    assert ids == ByteTokenizer().encode(
        ByteTokenizer().render(({"role": "user", "content": "a"},), ()) if templated else "a"
    )


def test_a_template_that_is_asked_for_and_is_not_there_is_told() -> None:
    request = read(text_input="a", apply_chat_template=True)
    plain = mock.Mock(spec=ByteTokenizer, has_chat_template=False)
    with pytest.raises(InvalidArgument, match="apply_chat_template: this model has no chat template"):
        request.token_ids(plain, True)


def test_a_chat_is_never_raw() -> None:
    assert read(messages=CHAT, apply_chat_template=True).messages
    with pytest.raises(InvalidArgument, match="apply_chat_template is false beside messages"):
        read(messages=CHAT, apply_chat_template=False)


def test_log_probabilities_are_asked_for_by_a_number_also_by_none() -> None:
    asked = [read(text_input="a", top_logprobs=top) for top in (0, 20)]
    assert [request.sampling.logprobs for request in asked] == [0, 20]
    assert read(text_input="a").sampling.logprobs is None


def test_where_an_answer_ends_and_what_is_biased() -> None:
    request = read(
        messages=CHAT, min_tokens=2, ignore_eos=True,
        stop_token_ids=[7, 9], logit_bias='{"5": -100, "6": 1.5}',
        top_k=-1,
    )  # fmt: skip
    sampling = request.sampling
    assert (sampling.min_tokens, sampling.ignore_eos, sampling.stop_token_ids) == (2, True, (7, 9))
    assert sampling.logit_bias == {5: -100.0, 6: 1.5}
    assert sampling.top_k == 0
    request = read(messages=CHAT, response_format=JSON, stop="x")
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
    request = read(messages=chat, **given)
    assert bytes(request.token_ids(ByteTokenizer(), apply_chat_template=True)).decode() == rendered


def test_an_assistant_that_has_called_is_not_continued() -> None:
    assert not read(messages=CALLED).rendering.continue_final_message
