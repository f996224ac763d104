"""A prompt within its tier's budget: what a chat loses, and whose limits count, the tier's or the model's."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.sinks import Collector
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import EngineInfo, Sampling
from trimodal.llm.frontend import input_processor as module
from trimodal.llm.frontend.input_processor import InputProcessor, fit, priority_of, within_output
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.rendering import Rendering
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.sampling_defaults import read_defaults
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import ByteTokenizer, Message

CONTINUED = Rendering(add_generation_prompt=False, continue_final_message=True)


def tokens(request: GenerationRequest) -> list[int]:
    return request.token_ids(ByteTokenizer(), apply_chat_template=True)


def size(content: str) -> int:
    return len(content.encode())


def chat(*messages: tuple[str, str]) -> GenerationRequest:
    said: tuple[Message, ...] = tuple({"role": role, "content": content} for role, content in messages)
    return GenerationRequest(None, said, Sampling(10))


def keeping(request: GenerationRequest, ratio: float) -> GenerationRequest:
    """It may be trimmed to this share of its room; 0: not at all."""
    return replace(request, terms=Terms(retention=ratio))


LONG = chat(
    ("system", "Be brief."),
    ("user", "one" * 20),
    ("assistant", "first" * 20),
    ("user", "two" * 20),
    ("tool", "passage" * 20),
    ("assistant", "second" * 20),
    ("user", "and now?"),
)


def roles(request: GenerationRequest) -> list[str]:
    return [message["role"] for message in request.messages or ()]


def test_what_fits_is_left_alone() -> None:
    prompt = fit(LONG, Tier(trim="oldest_turns"), 10_000, tokens, size)
    assert (prompt.request, prompt.trimmed) == (LONG, "")
    assert prompt.ids == tokens(LONG)


def test_the_oldest_turn_goes_first_and_whole() -> None:
    limit = len(tokens(LONG)) - 1
    prompt = fit(keeping(LONG, 1), Tier(trim="oldest_turns"), limit, tokens, size)
    assert roles(prompt.request) == ["system", "user", "tool", "assistant", "user"]
    assert prompt.ids == tokens(prompt.request)
    assert json.loads(prompt.trimmed) == {"messages": 2, "tokens": len(tokens(LONG)) - len(prompt.ids)}


def test_the_system_message_and_the_question_stay() -> None:
    least = chat(("system", "Be brief."), ("user", "and now?"))
    prompt = fit(LONG, Tier(trim="oldest_turns"), len(tokens(least)), tokens, size)
    assert prompt.request.messages == least.messages


def test_a_bare_prompt_is_never_cut() -> None:
    request = GenerationRequest("word " * 50, None, Sampling(10))
    assert fit(request, Tier(trim="oldest_turns"), 5, tokens, size).request is request


def test_nothing_more_than_needed_is_cut() -> None:
    draw = random.Random(7)
    for _ in range(100):
        turns = [
            pair
            for index in range(draw.randint(1, 12))
            for pair in (("user", f"q{index}" * draw.randint(1, 9)), ("assistant", "a" * draw.randint(0, 40)))
        ]
        request = chat(("system", "s"), *turns, ("user", "last"))
        limit = draw.randint(10, len(tokens(request)))
        prompt = fit(keeping(request, 1), Tier(trim="oldest_turns"), limit, tokens, size)
        if not prompt.trimmed:
            continue
        assert len(prompt.ids) <= limit
        lost = json.loads(prompt.trimmed)["messages"]
        assert lost % 2 == 0
        one_turn_less = chat(("system", "s"), *turns[lost - 2 :], ("user", "last"))
        assert len(tokens(one_turn_less)) > limit, "a turn was cut that would have fitted"


@pytest.mark.parametrize(
    "sizes",
    [[1] * 1000, [1] * 600 + [5000] + [1] * 399, [5000] + [1] * 999, [1] * 999 + [9000], list(range(1000))],
    ids=["equal", "one in the middle", "first", "last", "growing"],
)
def test_a_long_chat_is_tokenized_a_few_times_only(sizes: list[int]) -> None:
    request = chat(*(("user", "x" * size) for size in sizes), ("user", "and now?"))
    counted: list[int] = []

    def count(request: GenerationRequest) -> list[int]:
        ids = tokens(request)
        counted.append(len(ids))
        return ids

    limit = 8000
    prompt = fit(request, Tier(trim="oldest_turns"), limit, count, size)
    assert prompt.trimmed or sizes[-1] > limit
    assert len(counted) <= 4
    assert sum(counted[1:]) < 4 * limit + max(sizes), "what is tokenized again is about as long as the limit"


def test_a_chat_that_can_never_fit_is_tokenized_twice() -> None:
    request = chat(*[("user", "x")] * 1000, ("user", "y" * 9000))
    counted: list[int] = []

    def count(request: GenerationRequest) -> list[int]:
        counted.append(1)
        return tokens(request)

    assert fit(request, Tier(trim="oldest_turns"), 8000, count, size).request is request
    assert len(counted) == 2


def test_a_cut_that_the_chat_template_refuses_is_not_made() -> None:
    def picky(request: GenerationRequest) -> list[int]:
        said = roles(request)
        if said[1] != "user" or len(said) == 5:
            raise InvalidArgument("messages: the chat template refuses them")
        return tokens(request)

    request = chat(*[(role, role * 9) for role in ("system", *("user", "assistant") * 3, "user")])
    limit = len(tokens(request)) - 1
    assert len(roles(fit(keeping(request, 1), Tier(), limit, picky, size).request)) == 6
    whole = fit(chat(*[("system", "s" * 9), ("assistant", "a" * 9), ("user", "q")]), Tier(), 5, tokens, size)
    assert not whole.trimmed


def test_a_request_says_whether_it_may_be_trimmed() -> None:
    limit = len(tokens(LONG)) - 1
    assert fit(keeping(LONG, 0.8), Tier(), limit, tokens, size).trimmed
    assert not fit(keeping(LONG, 0), Tier(trim="oldest_turns"), limit, tokens, size).trimmed


def starts(ratio: float) -> list[int]:
    """The number of the first turn of each prompt of a talk that grows to 60 turns, with room for 13."""
    turns = [pair for n in range(60) for pair in (("user", f"{n:02}" * 20), ("assistant", "a" * 40))]
    found = []
    for end in range(1, len(turns), 2):
        talk = keeping(chat(("system", "s" * 50), *turns[:end]), ratio)
        prompt = fit(talk, Tier(), 1500, tokens, size)
        assert len(prompt.ids) <= 1500
        assert prompt.request.messages
        found.append(int(prompt.request.messages[1]["content"][:2]))
    return found


def test_a_talk_begins_at_the_same_turn_while_it_grows() -> None:
    """Else the prefix cache would never find it again."""
    large, small = starts(0.8), starts(1.0)
    changes = sum(one != other for one, other in zip(large, large[1:], strict=False))
    assert large[-1] > 40
    assert changes <= (large[-1] + 2) / 3, "each trim drops a fifth of the room: three turns"
    assert sum(one != other for one, other in zip(small, small[1:], strict=False)) == small[-1]


def test_an_answer_of_default_length_gets_room_in_a_trimmed_talk(settings: LlmSettings) -> None:
    settings = settings.model_copy(update={"max_prompt_tokens": 1023})
    talk = replace(users(*[20] * 40), sampling=Sampling(128), default_length=True)
    admission = Admission(settings, EngineInfo("fake", 32, 32, 4, 1024))
    state = InputProcessor(settings).process(keeping(talk, 0.8), Collector(), admission)
    assert (state.request.sampling.max_tokens, bool(state.trimmed)) == (128, True)
    # What cannot be cut takes that room again.
    question = replace(users(20, 900), sampling=Sampling(128), default_length=True)
    state = InputProcessor(settings).process(keeping(question, 0.8), Collector(), admission)
    assert len(state.prompt_ids) > 900
    assert state.request.sampling.max_tokens == 1024 - len(state.prompt_ids)


def test_fewest_tokens_beyond_what_the_prompt_leaves_are_refused(settings: LlmSettings) -> None:
    """OpenVINO GenAI would refuse it, as the engine's fault."""
    admission = Admission(settings, EngineInfo("fake", 32, 32, 4, 128))
    asked = replace(prompt(100, default=True), sampling=Sampling(64, min_tokens=28))
    assert InputProcessor(settings).process(asked, Collector(), admission).request.sampling.max_tokens == 28
    asked = replace(asked, sampling=Sampling(64, min_tokens=29))
    with pytest.raises(InvalidArgument, match="min_tokens is 29: the answer has 28 at most"):
        InputProcessor(settings).process(asked, Collector(), admission)


def test_a_tier_bounds_the_answer() -> None:
    tier = Tier(max_output_tokens=8)
    asked = GenerationRequest("hi", None, Sampling(10))
    with pytest.raises(InvalidArgument, match="max_tokens is 10: tier 'free' allows at most 8"):
        within_output(asked, tier, "free")
    default = GenerationRequest("hi", None, Sampling(10), default_length=True)
    assert within_output(default, tier, "free").sampling.max_tokens == 8
    assert within_output(asked, Tier(max_output_tokens=10), "free") is asked


def test_a_priority_may_be_lowered_only() -> None:
    tier = Tier(priority=5)
    assert priority_of(Terms(), tier, "paid") == 5
    assert priority_of(Terms(priority=-7), tier, "paid") == -7
    with pytest.raises(InvalidArgument, match="priority is 6: tier 'paid' allows at most 5"):
        priority_of(Terms(priority=6), tier, "paid")


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
    request = replace(request, terms=Terms(tier=tier, **terms))
    return InputProcessor(settings).process(request, Collector(), admission)


def prompt(tokens: int, max_tokens: int = 10, default: bool = False) -> GenerationRequest:
    return GenerationRequest("x" * (tokens - FRAME), None, Sampling(max_tokens), default_length=default)


def users(*sizes: int) -> GenerationRequest:
    return chat(*(("user", "x" * size) for size in sizes))


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
        stream = read(settings, users(50, 50, 20), tier)
        assert len(stream.prompt_ids) <= limit
        assert stream.request.messages
        assert stream.request.messages[-1]["content"] == "x" * 20
        with pytest.raises(InvalidArgument, match=f"{limit}$"):
            read(settings, users(5, 200), tier)


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


def test_what_the_checkpoint_asks_for_and_the_engine_has_not_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"repetition_penalty": 1.1, "min_p": 0.25}')
    settings = LlmSettings(engine="fake", max_prompt_tokens=100)
    settings.__dict__["sampling_defaults"] = read_defaults(tmp_path)  # the fake engine has no checkpoint
    info = EngineInfo("fake", 64, 32, 4, 1 << 20, unsupported={"repetition_penalty": "it speculates"})
    processor, admission = InputProcessor(settings), Admission(settings, info)

    def sampled(**sampling: float) -> Sampling:
        request = GenerationRequest("hi", None, Sampling(5, **sampling))  # type: ignore[arg-type]
        return processor.process(request, Collector(), admission).request.sampling

    assert sampled(repetition_penalty=1.1, min_p=0.25) == Sampling(5, min_p=0.25)
    with pytest.raises(InvalidArgument, match="does not support repetition_penalty: it speculates"):
        sampled(repetition_penalty=1.3)


@pytest.mark.parametrize(
    ("asked", "continued"),
    [
        ({"prompt": "Once", "apply_chat_template": False}, b"Once"),
        ({"prompt": "Once"}, b""),
        ({"prompt_token_ids": tuple(b"Once upon")}, b"nce upon"),
        ({"messages": ({"role": "user", "content": "Once"},)}, b""),
        ({"messages": ({"role": "assistant", "content": "Once"},), "rendering": CONTINUED}, b"nt: Once"),
    ],
)
def test_what_is_continued_is_known_to_its_answer(asked: dict[str, Any], continued: bytes) -> None:
    settings = LlmSettings(engine="fake", max_prompt_tokens=100)
    admission = Admission(settings, EngineInfo("fake", 64, 32, 4, 1 << 20, vocab_size=256))
    request = replace(GenerationRequest(None, None, Sampling(5)), **asked)
    state = InputProcessor(settings).process(request, Collector(), admission)
    assert bytes(state.context) == continued


def test_token_ids_beyond_the_vocabulary_are_refused() -> None:
    settings = LlmSettings(engine="fake", max_prompt_tokens=100)
    admission = Admission(settings, EngineInfo("fake", 64, 32, 4, 1 << 20, vocab_size=256))
    request = GenerationRequest(None, None, Sampling(5), prompt_token_ids=(7, 256))
    with pytest.raises(InvalidArgument, match="prompt_token_ids has token 256: .* 0 to 255"):
        InputProcessor(settings).process(request, Collector(), admission)


def test_a_prompt_that_cannot_be_kept_from_other_tenants_is_refused() -> None:
    settings = LlmSettings.model_validate({"engine": "fake"})
    info = EngineInfo("made up", 512, 32, 16, 4096, unsalted="repetition_penalty")
    admission, processor = Admission(settings, info), InputProcessor(settings)

    def processed(tenant: str, penalty: float) -> RequestState:
        sampling = Sampling(5, repetition_penalty=penalty)
        request = GenerationRequest("hello", None, sampling, terms=Terms(tenant=tenant))
        return processor.process(request, Collector(), admission)

    anna, nobody = processed("anna", 1.0), processed("", 1.1)
    assert (anna.cache_salt, nobody.cache_salt) == ("anna", "")
    assert anna.ticket(1).prefix != nobody.ticket(1).prefix, "what is predicted tells nothing either"
    with pytest.raises(InvalidArgument, match=r"repetition_penalty is 1\.1: .* prefix_cache_scope"):
        processed("anna", 1.1)
    processor._defaults = {"repetition_penalty": 1.1}  # the checkpoint asks for it, and nobody else
    assert processed("anna", 1.1).request.sampling.repetition_penalty == 1.0
    assert processed("", 1.1).request.sampling.repetition_penalty == 1.1


class DatedTokenizer(ByteTokenizer):
    is_dated = True

    def render(self, *arguments: Any, **more: Any) -> str:
        return f"Today is {module.date.today()}.\n{super().render(*arguments, **more)}"


def test_public_prompts_are_rendered_again_on_another_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(date):
        day = 27

        @classmethod
        def today(cls) -> Clock:
            return cls(2026, 11, cls.day)

    monkeypatch.setattr(module, "date", Clock)
    monkeypatch.setattr(module, "ByteTokenizer", DatedTokenizer)
    (tmp_path / "system.txt").write_text("You help. " * 20)
    processor = InputProcessor(
        LlmSettings(engine="fake", public_prompts="system.txt", version_directory=tmp_path / "1")
    )
    admission = Admission(processor._settings, EngineInfo("fake", 512, 32, 4, 1 << 20))

    def public() -> int:
        asked = chat(("system", ("You help. " * 20).strip()), ("user", "hi"))
        return processor.process(asked, Collector(), admission).public_tokens

    whole = public()
    assert whole >= 192
    Clock.day = 28
    assert public() == whole
    (tmp_path / "system.txt").unlink()
    assert public() == whole, "it is read once a day"
    Clock.day = 29
    assert public() == 0, "as it was rendered the day before"
