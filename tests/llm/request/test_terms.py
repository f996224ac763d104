from typing import Any

import pytest

from tests.llm.doubles.tensors import tensors
from trimodal.errors import InvalidArgument
from trimodal.llm.request.request import INPUTS, GenerationRequest, read_request
from trimodal.llm.request.terms import PARAMETERS, CancelRequest, ProbeRequest, Terms
from trimodal.llm.settings import LlmSettings

SETTINGS = LlmSettings(engine="fake")


def terms(parameters: dict[str, Any] | None = None, **inputs: Any) -> Terms:
    request = read_request(tensors(text_input="hi", **inputs), parameters or {}, SETTINGS)
    assert isinstance(request, GenerationRequest)
    return request.terms


def test_nothing_said_is_as_the_tier_says() -> None:
    assert terms() == Terms()


def test_every_field_is_read() -> None:
    read = terms(
        tenant="acme",
        tier="premium",
        priority=-3,
        ttft_deadline_ms=500,
        deadline_ms=9000,
        cache_control="no-cache, Store",
        cache_namespace="faq",
        cancel_key="k" * 16,
    )
    assert read == Terms("acme", "premium", -3, 500, 9000, frozenset({"no-cache", "store"}), "faq", "k" * 16)


RATIO = '{"type": "retention_ratio", "retention_ratio": 0.8}'


@pytest.mark.parametrize(
    ("truncation", "retention"), [("auto", 0.8), ("disabled", 0.0), (RATIO.replace("0.8", "0.5"), 0.5)]
)
def test_truncation_is_openais(truncation: str, retention: float) -> None:
    assert terms({"truncation": truncation}).retention == retention
    assert terms().retention is None


def test_a_parameter_is_as_good_as_an_input() -> None:
    read = terms({"tier": "premium", "ttft_deadline_ms": 500, "tenant": "naïve 日本"})
    assert (read.tier, read.ttft_deadline_ms, read.tenant) == ("premium", 500, "naïve 日本")


def test_every_input_of_one_value_may_be_a_parameter() -> None:
    sent = {"stream": False, "temperature": 0, "top_p": 0.5, "max_tokens": 7, "ignore_eos": True, "stop": "x"}
    read = read_request(tensors(text_input="hi"), sent, SETTINGS)
    assert isinstance(read, GenerationRequest)
    assert (read.stream, read.sampling.max_tokens, read.sampling.ignore_eos) == (False, 7, True)
    assert (read.sampling.temperature, read.sampling.top_p, read.stops) == (0, 0.5, ("x",))
    assert set(PARAMETERS) <= set(INPUTS)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"ttft_deadline": 5}, "unknown parameter 'ttft_deadline': send one of the model's inputs"),
        ({"text_input": "a"}, "unknown parameter 'text_input': send one of the model's inputs"),
        ({"temperature": "0"}, "temperature is '0': a number is needed"),
        ({"temperature": True}, "temperature is True: a number is needed"),
        ({"stream": 1}, "stream is 1: true or false is needed"),
        ({"max_tokens": 10**30}, f"max_tokens is {10**30}: it must be between 1 and 1024"),
        ({"tier": 3}, "tier is 3: a text is needed"),
        ({"priority": True}, "priority is True: a whole number is needed"),
        ({"priority": 1.0}, "priority is 1.0: a whole number is needed"),
        ({"deadline_ms": "500"}, "deadline_ms is '500': a whole number is needed"),
        ({"deadline_ms": 10**30}, f"deadline_ms is {10**30}: it must be between 1 and 86400000"),
        ({"ttft_deadline_ms": 0}, "ttft_deadline_ms is 0: it must be between 1 and 3600000"),
        ({"priority": -101}, "priority is -101: it must be between -100 and 100"),
        ({"tenant": "\ud800"}, "tenant holds a lone surrogate: it is not valid Unicode"),
        ({"tenant": "t" * 257}, "tenant has 257 bytes: at most 256 are taken"),
    ],
)
def test_a_wrong_parameter_is_named(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as told:
        terms(parameters)
    assert str(told.value) == sentence


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"tier": b"\xff"}, "tier is not valid UTF-8: byte 0 cannot be decoded"),
        ({"priority": [1, 2]}, "priority holds 2 values: exactly 1 is needed"),
        ({"priority": []}, "priority holds 0 values: exactly 1 is needed"),
        (
            {"cache_namespace": "weather"},
            "cache_namespace is 'weather': one of default, live, faq is needed",
        ),
        (
            {"cache_control": "no-cache,max-age=3"},
            "cache_control has 'max-age=3': no-cache, no-store, store are known, commas between",
        ),
        (
            {"cache_control": "store,no-store"},
            "cache_control has no-store and store: at most one of them is needed",
        ),
        ({"truncation": "oldest"}, f"truncation is 'oldest': auto, disabled or {RATIO} is needed"),
        (
            {"truncation": '{"type": "x"}'},
            f'truncation is \'{{"type": "x"}}\': auto, disabled or {RATIO} is needed',
        ),
        (
            {"truncation": RATIO.replace("0.8", "1.5")},
            "truncation.retention_ratio must be a number between 0 and 1",
        ),
        ({"cancel_key": "short"}, "cancel_key has 5 bytes: 16 to 128 random ones are needed"),
        ({"cancel_key": "k" * 129}, "cancel_key has 129 bytes: 16 to 128 random ones are needed"),
    ],
)
def test_a_wrong_input_is_named(inputs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument) as told:
        terms(**inputs)
    assert str(told.value) == sentence


def test_a_field_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="tier is given twice: as an input and as a parameter"):
        terms({"tier": "premium"}, tier="premium")


def test_a_cancel_goes_alone() -> None:
    key = "k" * 20
    assert read_request(tensors(cancel=key), {}, SETTINGS) == CancelRequest(key)
    with pytest.raises(InvalidArgument, match="cancel goes alone: text_input came with it"):
        read_request(tensors(cancel=key, text_input="hi"), {}, SETTINGS)
    with pytest.raises(InvalidArgument, match="cancel has 0 bytes: 16 to 128 random ones are needed"):
        read_request(tensors(cancel=""), {}, SETTINGS)


def test_a_probe_is_nothing_else() -> None:
    assert read_request({}, {"probe": True}, SETTINGS) == ProbeRequest()
    for inputs, parameters in (
        (tensors(text_input="hi"), {"probe": True}),
        ({}, {"probe": 1, "tier": "a"}),
    ):
        with pytest.raises(InvalidArgument, match="unknown parameter 'probe'"):
            read_request(inputs, parameters, SETTINGS)
