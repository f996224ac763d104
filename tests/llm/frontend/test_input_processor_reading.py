"""A request on its tier's terms: the tighter of the tier's and the model's limits counts, and is named."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.llm.doubles.sinks import Collector
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.frontend.input_processor import InputProcessor
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import Message

TIERS = """
[tier.standard]
[tier.small]
max_prompt_tokens = 60
max_output_tokens = 20
[tier.large]
max_prompt_tokens = 1000000
max_output_tokens = 1000000
deadline_ms = 5000
[tier.trims]
max_prompt_tokens = 60
trim = "oldest_turns"
[tier.trims_large]
max_prompt_tokens = 1000000
trim = "oldest_turns"
"""
FRAME = len("user: \nassistant: ")


@pytest.fixture
def settings(tmp_path: Path) -> LlmSettings:
    (tmp_path / "tiers.toml").write_text(TIERS)
    return LlmSettings(engine="fake", tiers=str(tmp_path / "tiers.toml"), max_prompt_tokens=100)


def read(
    settings: LlmSettings, request: GenerationRequest, tier: str, blocks: int = 512, **terms: int
) -> RequestState:
    admission = Admission(settings, EngineInfo("fake", blocks, 32, 4, 1 << 20))
    request = GenerationRequest(
        request.prompt,
        request.messages,
        request.sampling,
        default_length=request.default_length,
        terms=Terms(tier=tier, **terms),
    )
    return InputProcessor(settings).process(request, Collector(), admission)


def prompt(tokens: int, max_tokens: int = 10, default: bool = False) -> GenerationRequest:
    return GenerationRequest("x" * (tokens - FRAME), None, Sampling(max_tokens), default_length=default)


def chat(*sizes: int) -> GenerationRequest:
    messages: tuple[Message, ...] = tuple({"role": "user", "content": "x" * size} for size in sizes)
    return GenerationRequest(None, messages, Sampling(10))


@pytest.mark.parametrize(
    ("tier", "tokens", "sentence"),
    [
        ("small", 61, "the prompt has 61 tokens: tier 'small' allows at most 60"),
        ("large", 101, "the prompt has 101 tokens: max_prompt_tokens is 100"),
        ("standard", 101, "the prompt has 101 tokens: max_prompt_tokens is 100"),
    ],
)
def test_the_tighter_limit_of_the_prompt_is_named(
    settings: LlmSettings, tier: str, tokens: int, sentence: str
) -> None:
    with pytest.raises(InvalidArgument) as told:
        read(settings, prompt(tokens), tier)
    assert str(told.value) == sentence
    assert len(read(settings, prompt(tokens - 1), tier).prompt_ids) == tokens - 1


def test_a_tier_may_not_give_more_than_the_model(settings: LlmSettings) -> None:
    for tier in ("trims", "trims_large"):
        limit = 60 if tier == "trims" else 100
        stream = read(settings, chat(50, 50, 20), tier)
        assert len(stream.prompt_ids) <= limit
        assert stream.request.messages
        assert stream.request.messages[-1]["content"] == "x" * 20
        with pytest.raises(InvalidArgument, match=f"{limit}$"):
            read(settings, chat(5, 200), tier)


def test_a_default_length_gives_way_to_tier_and_pool(settings: LlmSettings) -> None:
    assert read(settings, prompt(50, 128, default=True), "small").request.sampling.max_tokens == 20
    assert read(settings, prompt(90, 128, default=True), "large", 4).request.sampling.max_tokens == 38
    with pytest.raises(InvalidArgument, match="the KV pool holds 128"):
        read(settings, prompt(90, 39), "large", 4)
    with pytest.raises(InvalidArgument, match="max_tokens is 21: tier 'small' allows at most 20"):
        read(settings, prompt(50, 21), "small")


def test_the_deadline_is_the_tiers_or_the_requests(settings: LlmSettings) -> None:
    tiers, own = read(settings, prompt(50), "large"), read(settings, prompt(50), "large", deadline_ms=70_000)
    assert tiers.deadline - tiers.arrived == pytest.approx(5)
    assert own.deadline - own.arrived == pytest.approx(70)
    assert read(settings, prompt(50), "").deadline == math.inf
    assert (tiers.tier_name, read(settings, prompt(50), "").tier_name) == ("large", "standard")


def test_what_was_cut_is_told(settings: LlmSettings) -> None:
    stream = read(settings, chat(50, 50, 20), "trims")
    assert json.loads(stream.trimmed) == {"messages": 2, "tokens": 2 * (50 + len("user: \n"))}
