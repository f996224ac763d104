"""Which field a refusal of the server names to a client of OpenAI's API."""

from __future__ import annotations

import pytest

from trimodal.errors import InvalidArgument
from trimodal.gateway.errors import ApiError, as_api_error


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
        ("the prompt has 9 tokens: max_prompt_tokens is 8", None),
    ],
)
def test_the_field_is_named(message: str, param: str | None) -> None:
    error = as_api_error(InvalidArgument(message))
    assert (error.status, error.param, str(error)) == (400, param, message)


def test_a_tier_that_is_not_there_is_the_keys_fault_and_not_the_requests() -> None:
    error = as_api_error(InvalidArgument("answer: tier is 'gold': one of standard, batch is needed"))
    assert (error.status, error.param, error.code) == (403, None, "key_tier")
    assert str(error).startswith("this API key's tier is 'gold': one of standard, batch is needed")


@pytest.mark.parametrize(
    "message",
    [
        "the prompt has 9 tokens: max_prompt_tokens is 8",
        "answer: the prompt has 9 tokens: tier 'small' allows at most 8",
        "prompt (9) and max_tokens (2) make 11 tokens: this model takes 10 together",
    ],
)
def test_a_talk_that_is_too_long_has_openais_code(message: str) -> None:
    assert as_api_error(InvalidArgument(message)).code == "context_length_exceeded"
