"""Which field a refusal of the server names to a client of OpenAI's API."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from trimodal.errors import InvalidArgument
from trimodal.gateway.errors import ApiError, as_api_error, invalid_body
from trimodal.gateway.openai.fields import Body
from trimodal.gateway.openai.responses.request import ResponseRequest
from trimodal.gateway.openai.rows import EmbeddingRequest
from trimodal.gateway.openai.schemas import ChatRequest


def test_names_that_a_client_chose_are_not_echoed_at_any_length() -> None:
    error = ApiError(400, f"{'x' * 70_000}: unknown parameter", param="x" * 70_000)
    assert len(str(error)) == 1000
    assert error.param is not None
    assert len(error.param) == 200


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("max_tokens is 9: it must be between 1 and 8", "max_tokens"),
        ("response_format: pattern is not supported", "response_format"),
        ("speech_recognize: language: 'xx' is not known (known: en)", "language"),
        ("heard: speech_recognize: language: 'xx' is not known (known: en)", "language"),
        ("saw: image: not a JPEG, PNG or WebP file", "messages"),
        ("answer: ttft_deadline_ms is 0", "x-slo-ttft-ms"),
        ("messages[1].tool_calls[0].function.arguments is not valid JSON: line 1",
         "messages[1].tool_calls[0].function.arguments"),
        ("engine 'fake' as it runs here does not support logit_bias: it has no model", "logit_bias"),
    ],
)  # fmt: skip
def test_the_field_is_named(message: str, param: str | None) -> None:
    error = as_api_error(InvalidArgument(message))
    assert (error.status, error.param, str(error)) == (400, param, message)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_request_without_a_thread_or_memory_may_come_again(error: Exception) -> None:
    """It was an error of the gateway's own, with a traceback for each request."""
    told = as_api_error(error)
    assert (told.status, told.code, told.retry_after_s) == (503, "overloaded", 1.0)


def test_a_tier_that_is_not_there_is_the_keys_fault_and_not_the_requests() -> None:
    error = as_api_error(InvalidArgument("answer: tier is 'gold': one of standard, batch is needed"))
    assert (error.status, error.param, error.code) == (403, None, "key_tier")
    assert str(error).startswith("this API key's tier is 'gold': one of standard, batch is needed")


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("", "the prompt has 9 tokens: max_prompt_tokens is 8"),
        ("answer: ", "the prompt has 9 tokens: tier 'small 16' allows at most 8"),
        ("", "prompt (7) and max_tokens (2) make 9 tokens: this model takes 8 together"),
        ("", "prompt (7) and max_tokens (2) make 9 tokens: the KV pool holds 8"),
    ],
)
def test_a_talk_that_is_too_long_is_told_as_openai_tells_it(stage: str, message: str) -> None:
    """LiteLLM looks for these words, and goes on with a model that has more room."""
    error = as_api_error(InvalidArgument(stage + message))
    assert (error.param, error.code) == (None, "context_length_exceeded")
    assert str(error) == f"{stage}This model's maximum context length is 8 tokens. However, {message}"


@pytest.mark.parametrize("what", ["logit_bias", "response_format and tools"])
def test_what_the_engine_lacks_has_the_code_of_what_cannot_be_honoured(what: str) -> None:
    message = f"answer: engine 'fake' as it runs here does not support {what}: it has no model"
    assert as_api_error(InvalidArgument(message)).code == "unsupported_parameter"


@pytest.mark.parametrize(
    "message",
    [
        "unexpected inference input 'messages' for model 'speech'",
        "expected 2 inputs but got 1 inputs for model 'speech'. Got input(s) ['messages'], but missing "
        "required input(s) ['audio']. Please provide all required input(s).",
    ],
)
def test_a_model_that_is_not_for_the_endpoint_is_the_field(message: str) -> None:
    error = as_api_error(InvalidArgument(message))
    told = "model is 'speech': it does not answer what this endpoint asks"
    assert (error.status, error.param, str(error)) == (400, "model", told)


CHATS = {"model": "llm", "messages": [{"role": "user", "content": "x"}]}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}


def _content(content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (ChatRequest, [1], "the body: an object is needed"),
        (ChatRequest, {"messages": ["x"]}, "messages[0]: an object is needed"),
        (ChatRequest, {"response_format": "json"}, "response_format: an object is needed"),
        (ChatRequest, _content([{"text": "x"}]), "messages[0].content[0]: its type is needed"),
        (ChatRequest, _content([{"type": "input_text", "text": "x"}]),
         "messages[0].content[0]: its type is 'input_text': one of 'text', "
         "'refusal', 'image_url', 'input_audio' is needed"),
        (ChatRequest, _content([{"type": "image_url", "image_url": "data:,"}]),
         "messages[0].content[0].image_url: an object is needed"),
        (ChatRequest, _content({"type": "text"}), "messages[0].content: a string or a list is needed"),
        (ChatRequest, {"stop": 3}, "stop: a string or a list is needed"),
        (ChatRequest, TOOLS | {"tool_choice": {"type": "allowed_tools"}},
         "tool_choice.allowed_tools: field required"),
        (ChatRequest, TOOLS | {"tool_choice": {"type": "web"}},
         "tool_choice: its type is 'web': one of 'function', 'allowed_tools' is needed"),
        (EmbeddingRequest, {"model": "e", "input": []},
         "input: list should have at least 1 item after validation, not 0"),
        (EmbeddingRequest, {"model": "e", "input": {}}, "input: a string or a list is needed"),
        (EmbeddingRequest, {"model": "e", "input": [[1]]}, "input: token ids are another model's: send texts "
         "(LangChain: check_embedding_ctx_length=False)"),
        (ResponseRequest, {"model": "llm", "input": ["x"]}, "input[0]: an object is needed"),
        (ResponseRequest, {"model": "llm", "input": "x", "metadata": {"User": 5}},
         "metadata.User: a string is needed"),
    ],
)  # fmt: skip
def test_a_body_is_refused_in_the_words_of_json(kind: type[Body], body: Any, message: str) -> None:
    given = CHATS | body if kind is ChatRequest and isinstance(body, dict) else body
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(given)
    problems = [one | {"loc": ("body", *one["loc"])} for one in refused.value.errors()]
    error = invalid_body(RequestValidationError(problems))
    assert str(error) == message
    assert error.param == (message.split(":")[0] if message != "the body: an object is needed" else None)
