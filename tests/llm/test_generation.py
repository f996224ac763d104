"""Who listens to a generation, what each is told, and whose it is once the first one has gone."""

from __future__ import annotations

import math

import pytest

from tests.llm.sinks import Collector
from trimodal.llm.detokenize import TextStream
from trimodal.llm.engine import Sampling
from trimodal.llm.generation import Generation
from trimodal.llm.request import GenerationRequest
from trimodal.llm.scheduler import Ticket
from trimodal.llm.stream import Delta, Stream
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import ByteTokenizer


def stream_of(arrived: float = 10.0, prompt: str = "hello", tier: Tier | None = None) -> Stream:
    request = GenerationRequest(prompt, None, Sampling(8))
    return Stream(request, list(prompt.encode()), Collector(), arrived=arrived, tier=tier)


def generation_of(first: Stream, predicted: float = math.nan, tier: Tier | None = None) -> Generation:
    ticket = Ticket(1, 5, 8, arrived=first.arrived, predicted_ttft=predicted, tier=tier or Tier())
    return Generation(ticket, first, TextStream(ByteTokenizer(), ()), None)


def say(generation: Generation, text: str, finish: str | None = None, cached: int = 0) -> None:
    ids = list(text.encode())
    generation.ticket.completion_tokens += len(ids)
    generation.push(ids, finish, cached)


def last(stream: Stream) -> Delta:
    item = stream.take()
    assert isinstance(item, Delta)
    return item


def cache_of(stream: Stream) -> str:
    note = last(stream).note
    assert note
    return note.cache


def test_who_joins_is_told_that_it_is_shared() -> None:
    first, second = stream_of(), stream_of()
    generation = generation_of(first)
    generation.join(second)
    say(generation, "abc", "length")
    assert [cache_of(stream) for stream in (first, second)] == ["", "coalesced"]


def test_when_the_first_leaves_it_is_the_next_ones() -> None:
    first, second, third = stream_of(), stream_of(), stream_of()
    generation = generation_of(first)
    generation.join(second)
    generation.join(third)
    assert not generation.leave(first)
    say(generation, "abc", "length")
    assert [cache_of(stream) for stream in (second, third)] == ["", "coalesced"]


def test_at_the_end_nobody_inherits() -> None:
    first, second = stream_of(), stream_of()
    generation = generation_of(first)
    generation.join(second)
    say(generation, "abc", "length")
    generation.leave(first)
    assert generation.leave(second)
    assert cache_of(second) == "coalesced"


@pytest.mark.parametrize(
    ("arrived", "said", "foreseen"), [(10.0, "", 3.0), (12.0, "", 1.0), (15.0, "", 0.0), (12.0, "abc", 0.0)]
)
def test_ttft_is_foreseen_from_each_ones_own_arrival(arrived: float, said: str, foreseen: float) -> None:
    generation = generation_of(stream_of(10.0), predicted=3.0)
    if said:
        say(generation, said)
    late = stream_of(arrived)
    generation.join(late)
    assert late.predicted_ttft == foreseen
    if not said:
        generation.handed_over()
        assert late.predicted_ttft == foreseen


def test_what_was_not_foreseen_is_nobodys() -> None:
    generation = generation_of(stream_of())
    late = stream_of(11.0)
    generation.join(late)
    generation.handed_over()
    assert math.isnan(late.predicted_ttft)


def test_no_more_of_a_prompt_is_cached_than_it_has() -> None:
    long, short = stream_of(prompt="hello" + "\n" * 100), stream_of(prompt="hello")
    generation = generation_of(long)
    generation.join(short)
    say(generation, "abc", cached=96)
    assert (last(long).cached_tokens, last(short).cached_tokens) == (96, 5)


def test_nobody_waits_behind_a_smaller_share_than_its_own() -> None:
    half = Tier(kv_share=0.5)
    generation = generation_of(stream_of(), tier=half)
    assert generation.suits(stream_of(tier=half))
    assert not generation.suits(stream_of(tier=Tier()))
    generation.ticket.started = 1.0
    assert generation.suits(stream_of(tier=Tier())), "it runs: there is nothing to wait for"


def test_listeners_are_bounded() -> None:
    generation = generation_of(stream_of())
    for _ in range(1023):
        assert generation.suits(stream_of())
        generation.join(stream_of())
    assert not generation.suits(stream_of())
