"""Who listens to a generation, what each is told, and whose it is once the first one has gone."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.checkpoints import END, sentencepiece
from tests.llm.doubles.sinks import Collector, FakeServer
from trimodal.cache.values import Entry, Hit
from trimodal.errors import Cancelled, InternalError
from trimodal.llm.engines.protocol import Logprobs, Output, Sampling
from trimodal.llm.frontend import request_state
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.frontend.request_state import Generation, RequestState
from trimodal.llm.request.outputs import Delta, TokenLogprob, columns
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.structured.families import THINKING, Family
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import ByteTokenizer
from trimodal.metrics import MemoryMetrics
from trimodal.trace import read


def state_of(
    arrived: float = 10.0, prompt: str = "hello", tier: Tier | None = None, **sampling: Any
) -> RequestState:
    request = GenerationRequest(prompt, None, Sampling(8, **sampling))
    return RequestState(request, list(prompt.encode()), Collector(), arrived, tier=tier or Tier())


def generation_of(first: RequestState, predicted: float = math.nan, tier: Tier | None = None) -> Generation:
    ticket = Ticket(1, 5, 8, arrived=first.arrived, predicted_ttft=predicted, tier=tier or Tier())
    return Generation(ticket, first, ByteTokenizer())


def say(generation: Generation, text: str, finish: str | None = None, cached: int = 0) -> None:
    ids = list(text.encode())
    generation.ticket.completion_tokens += len(ids)
    generation.push(Output(1, ids, finish, cached))


def last(state: RequestState) -> Delta:
    item = state.take()
    assert isinstance(item, Delta)
    return item


def cache_of(state: RequestState) -> str:
    note = last(state).note
    assert note
    return note.cache


def test_a_stop_token_counts_and_its_text_is_no_more_said_than_a_stop_strings() -> None:
    state = state_of(stop_token_ids=(ord("x"),), logprobs=0)
    tokenizer = ByteTokenizer()
    generation = Generation(Ticket(1, 5, 8), state, tokenizer)
    logprobs = tuple(map(Logprobs, (-0.5, -0.25, -0.125)))
    assert generation.push(Output(1, list(b"abx"), "stop", logprobs=logprobs))
    delta = last(state)
    assert (delta.text, delta.finish_reason, delta.completion_tokens) == ("ab", "stop", 3)
    assert [one.token for one in delta.logprobs or ()] == [b"a", b"b"]


def test_the_token_that_ends_an_answer_is_not_said_though_no_file_marks_it_as_special(tmp_path: Path) -> None:
    tokenizer, state = sentencepiece(tmp_path), state_of(logprobs=0)
    generation, (end,) = Generation(Ticket(1, 5, 8), state, tokenizer), tokenizer.ends
    ids = [*tokenizer.encode("Paris."), end]
    generation.push(Output(1, ids, "stop", logprobs=tuple(map(Logprobs, range(-len(ids), 0)))))
    delta = last(state)
    assert (delta.text, delta.finish_reason, delta.completion_tokens) == ("Paris.", "stop", len(ids))
    assert b"".join(one.token for one in delta.logprobs or ()) == b"Paris."


def test_no_stop_string_ends_an_answer_before_its_least_tokens() -> None:
    state = state_of(min_tokens=4)
    state.request = replace(state.request, stops=("!",))
    say(generation_of(state), "no! yes! but")
    delta = last(state)
    assert (delta.text, delta.finish_reason) == ("no! yes", "stop")


def test_an_answer_that_continues_its_prompt_keeps_its_first_blank(tmp_path: Path) -> None:
    tokenizer, state = sentencepiece(tmp_path), state_of(logprobs=0)
    state.context = tokenizer.encode("The capital is")
    ids = tokenizer.encode("Paris.")
    logprobs = tuple(map(Logprobs, range(-len(ids), 0)))
    Generation(Ticket(1, 5, 8), state, tokenizer).push(Output(1, ids, "length", logprobs=logprobs))
    delta = last(state)
    assert delta.text == " Paris."
    assert [one.token for one in delta.logprobs or ()] == [b" Paris", b"."]


def test_a_token_that_ended_nothing_is_said(tmp_path: Path) -> None:
    tokenizer, state = sentencepiece(tmp_path), state_of(ignore_eos=True)
    generation, (end,) = Generation(Ticket(1, 5, 8), state, tokenizer), tokenizer.ends
    generation.push(Output(1, [end, *tokenizer.encode("Paris"), end], "length"))
    assert last(state).text == f"{END} Paris{END}"


@pytest.mark.parametrize(
    ("family", "said", "thought", "words"),
    [
        (Family(calls="mistral"), 'Hm. [TOOL_CALLS]f{"a": ', "", 'Hm. [TOOL_CALLS]f{"a": '),
        (Family(calls="llama3_json"), '{"name": "f", "param', "", '{"name": "f", "param'),
        (Family(THINKING["qwen3"]), "<think>Two.</th", "Two.</th", ""),
        (Family(THINKING["qwen3"]), "<thi", "", "<thi"),
        (None, "The en", "", "The en"),
    ],
)
def test_who_leaves_at_its_deadline_gets_what_was_held_back(
    family: Family | None, said: str, thought: str, words: str
) -> None:
    state = state_of()
    state.request = replace(state.request, stops=("end",))
    if family:
        state.make_reader = partial(family.reader, "", thinks=True, names={"f"})
    generation = generation_of(state)
    say(generation, said)
    generation.leave(state)
    state.push("", 0, "deadline")
    delta = last(state)
    assert (delta.reasoning, delta.text, delta.finish_reason) == (thought, words, "deadline")


def test_what_was_held_back_comes_with_its_log_probabilities_at_a_deadline() -> None:
    state = state_of(logprobs=0)
    state.request = replace(state.request, stops=("end",))
    generation, ids = generation_of(state), list(b"The en\xc3")
    generation.push(Output(1, ids, None, logprobs=tuple(Logprobs(-float(at)) for at in range(len(ids)))))
    generation.leave(state)
    delta = last(state)
    assert delta.text == "The en"
    assert [(one.token, -one.logprob) for one in delta.logprobs or ()] == [
        (bytes([id]), at) for at, id in enumerate(ids[:-1])
    ]


@pytest.mark.parametrize(
    ("said", "prompt_end", "tokens"),
    [
        ("<think>Two.</think>4", "", len("<think>Two.")),
        ("Two.\n</think>4", "<think>", len("Two.\n")),
        ("</think>4", "<think>", 0),
        ("<think>Two", "", len("<think>Two")),
        ("It is 4.", "", 0),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 99])
def test_tokens_before_the_mark_that_ends_the_thoughts_are_thoughts(
    said: str, prompt_end: str, tokens: int, step: int
) -> None:
    state = state_of()
    state.make_reader = partial(Family(THINKING["qwen3"]).reader, prompt_end, thinks=True, names=())
    generation = generation_of(state)
    for at in range(0, len(said), step):
        say(generation, said[at : at + step])
    say(generation, "", "stop")
    delta = last(state)
    assert (delta.completion_tokens, delta.reasoning_tokens) == (len(said), tokens)


def test_when_the_first_leaves_it_is_the_next_ones() -> None:
    first, second, third = state_of(), state_of(), state_of()
    generation = generation_of(first)
    generation.join(second)
    generation.join(third)
    assert not generation.leave(first)
    say(generation, "abc", "length")
    assert [cache_of(state) for state in (second, third)] == ["", "coalesced"]


@pytest.mark.parametrize("end", ["cancelled", "deadline"])
def test_what_the_first_got_is_not_counted_again_with_the_answer_of_the_next(end: str) -> None:
    metrics = MemoryMetrics()
    first, second = state_of(), state_of()
    generation = generation_of(first)
    say(generation, "abc")
    generation.join(second)
    if end == "deadline":
        generation.leave(first)
        first.push("", 0, "deadline")
        delta = last(first)
        assert delta.note is not None
        assert delta.note.cache == ""
        first.sent(delta, LlmMetrics(metrics, "llm"))
    else:
        first.fail(Cancelled("the client left"))
        generation.leave(first)
        first.sent(Cancelled("the client left"), LlmMetrics(metrics, "llm"))
    say(generation, "de", "length")
    second.sent(last(second), LlmMetrics(metrics, "llm"))
    told = {
        kind: metrics.get("trimodal_llm_tokens_total", {"model": "llm", "kind": kind}).value
        for kind in ("completion", "saved")
    }
    assert told == {"completion": 5, "saved": 3}


@pytest.mark.parametrize(
    ("predicted", "arrived", "said", "foreseen"),
    [
        (3.0, 10.0, "", 3.0),
        (3.0, 12.0, "", 1.0),
        (3.0, 15.0, "", 0.0),
        (3.0, 12.0, "abc", 0.0),
        (math.nan, 11.0, "", math.nan),
    ],
)
def test_ttft_is_foreseen_from_each_ones_own_arrival(
    predicted: float, arrived: float, said: str, foreseen: float
) -> None:
    generation = generation_of(state_of(10.0), predicted=predicted)
    if said:
        say(generation, said)
    late = state_of(arrived)
    generation.join(late)
    assert late.predicted_ttft == pytest.approx(foreseen, nan_ok=True)
    if not said:
        generation.handed_over()
        assert late.predicted_ttft == pytest.approx(foreseen, nan_ok=True)


def test_no_more_of_a_prompt_is_cached_than_it_has() -> None:
    long, short = state_of(prompt="hello" + "\n" * 100), state_of(prompt="hello")
    generation = generation_of(long)
    generation.join(short)
    say(generation, "abc", cached=96)
    assert (last(long).cached_tokens, last(short).cached_tokens) == (96, 5)


def test_nobody_waits_behind_a_smaller_share_than_its_own() -> None:
    half = Tier(kv_share=0.5)
    generation = generation_of(state_of(), tier=half)
    assert generation.accepts(state_of(tier=half))
    assert not generation.accepts(state_of(tier=Tier()))
    generation.ticket.started = 1.0
    assert generation.accepts(state_of(tier=Tier())), "it runs: there is nothing to wait for"


def test_listeners_are_bounded() -> None:
    generation = generation_of(state_of())
    for _ in range(1023):
        assert generation.accepts(state_of())
        generation.join(state_of())
    assert not generation.accepts(state_of())


def make(trimmed: str = "") -> RequestState:
    return RequestState(
        GenerationRequest("hi", None, Sampling(10)), [1, 2, 3], Collector(), 10.0, trimmed=trimmed
    )


def test_who_waits_long_hears_that_the_engine_goes_on() -> None:
    state = state_of(arrived=10.0)
    assert not state.waits(now=14.0, stepped=14.0), "not so soon"
    assert not state.waits(now=16.0, stepped=9.0), "it stands still"
    assert state.waits(now=16.0, stepped=15.0)
    delta = last(state)
    assert (delta.text, delta.finish_reason, delta.prompt_tokens, delta.note) == ("", "", 5, None)
    metrics = MemoryMetrics()
    state.sent(delta, LlmMetrics(metrics, "llm"))
    assert state.take() is None
    assert not metrics.get("trimodal_llm_ttft_seconds", {"model": "llm"}).observations, "it was no text"
    now = time.perf_counter()
    assert not state.waits(now + 4, stepped=now + 3)
    assert state.waits(now + 6, stepped=now + 5)
    state.push("x", 1, "length")
    assert last(state).text == "x"
    assert not state.waits(now + 60, stepped=now + 59), "it has ended"


def test_what_is_told_of_a_text_waits_for_it() -> None:
    """Clients pass over a delta without text: a stream of a call that took long lacked log probabilities."""
    state = RequestState(GenerationRequest("hi", None, Sampling(10, logprobs=0)), [1], Collector(), 10.0)
    early, late = TokenLogprob(b"{", -1.0), TokenLogprob(b"}", -2.0)
    state.prompt_logprobs = (early,)
    state.push("", 1, "", 0, [early])
    assert state.waits(now=20.0, stepped=19.0)
    waiting = last(state)
    assert (waiting.text, waiting.logprobs, waiting.prompt_logprobs) == ("", None, ())
    assert waiting.completion_tokens == 1
    state.push("{}", 1, "stop", 0, [late])
    end = last(state)
    assert (end.text, end.logprobs, end.prompt_logprobs) == ("{}", [early, late], (early,))


def test_an_answer_that_is_cut_off_counts_the_tokens_that_it_got() -> None:
    def tokens(kind: str) -> float:
        return metrics.get("trimodal_llm_tokens_total", {"model": "llm", "kind": kind}).value

    metrics = MemoryMetrics()
    for pushed in ("", "abc"):
        state = state_of()
        if pushed:
            state.push(pushed, 3, "", 4)
            state.sent(last(state), LlmMetrics(metrics, "llm"))
        state.sent(Cancelled("the client left"), LlmMetrics(metrics, "llm"))
    assert (tokens("prompt"), tokens("cached"), tokens("completion")) == (5, 4, 3)
    hit = state_of()
    hit.shared = True
    hit.push("abc", 3, "")
    hit.sent(Cancelled("the client left"), LlmMetrics(metrics, "llm"))
    assert (tokens("completion"), tokens("saved")) == (3, 3)


@pytest.mark.parametrize(("foreseen", "counted"), [(math.nan, 0), (0.5, 1)])
def test_how_far_the_forecast_was_off_is_counted_once(foreseen: float, counted: int) -> None:
    state = state_of(arrived=time.perf_counter() - 100)
    state.predicted_ttft = foreseen
    metrics = MemoryMetrics()
    for text in ("a", "b"):
        state.push(text, 1, "")
        state.sent(last(state), LlmMetrics(metrics, "llm"))
    errors = metrics.get("trimodal_llm_ttft_prediction_error_seconds", {"model": "llm"}).observations
    assert len(errors) == counted
    assert all(error > 99 for error in errors)


def test_the_end_comes_even_without_text_and_has_the_note() -> None:
    state = make(trimmed='{"messages": 2}')
    state.push("", 0, "length")
    assert state.ended
    taken = state.take()
    assert isinstance(taken, Delta)
    assert (taken.text, taken.finish_reason) == ("", "length")
    assert taken.note
    assert (taken.note.cache, taken.note.similarity, taken.note.queue_s) == ("", 0.0, 0.0)
    assert taken.note.trimmed == '{"messages": 2}'
    assert math.isnan(taken.note.predicted_ttft_s)
    assert state.take() is None


@pytest.mark.parametrize(("kind", "similarity"), [("exact", 1.0), ("semantic", 0.93)])
def test_a_hit_is_an_answer_like_any_other(kind: str, similarity: float) -> None:
    state = make()
    state.answer(Hit(Entry("hi", "Hello.", "stop", 4, 10, 0.0, 1.0), kind, similarity))  # type: ignore[arg-type]
    taken = state.take()
    assert isinstance(taken, Delta)
    assert (taken.text, taken.finish_reason) == ("Hello.", "stop")
    assert (taken.prompt_tokens, taken.cached_tokens, taken.completion_tokens) == (3, 0, 4)
    assert taken.note
    assert (taken.note.cache, taken.note.similarity) == (kind, similarity)


@pytest.mark.parametrize("first", ["refuse", "fail", "push", "answer"])
def test_who_ends_it_first_decides_the_final_response(first: str) -> None:
    hit = Hit(Entry("hi", "Hello.", "stop", 4, 10, 0.0, 1.0), "exact")
    ends = {
        "refuse": lambda state: state.break_off(None),
        "fail": lambda state: state.fail(Cancelled("gone")),
        "push": lambda state: state.push("text", 1, "stop"),
        "answer": lambda state: state.answer(hit),
    }
    for later in set(ends) - {first, "refuse"}:
        alone, both = make(), make()
        ends[first](alone)
        ends[first](both)
        ends[later](both)
        assert both.ended
        assert str(both.take()) == str(alone.take())
        assert both.take() is None


def test_a_response_that_cannot_be_sent_is_replaced_by_an_error_even_at_the_end() -> None:
    state = make()
    state.push("text", 1, "stop")
    assert isinstance(state.take(), Delta)
    state.break_off(InternalError("not sent"))
    assert isinstance(state.take(), InternalError)
    assert state.take() is None


def test_after_an_error_nothing_else_is_sent() -> None:
    state = make()
    state.push("waiting", 7, "")
    error = Cancelled("gone")
    state.fail(error)
    assert state.take() is error
    assert state.take() is None


@pytest.mark.parametrize(
    ("tier", "terms", "due", "bound"),
    [
        (Tier(), Terms(), math.inf, "ttft_deadline_ms"),
        (Tier(ttft_deadline_ms=500), Terms(), 100.5, "ttft_deadline_ms"),
        (Tier(ttft_deadline_ms=500), Terms(ttft_deadline_ms=2000), 102.0, "ttft_deadline_ms"),
        (Tier(ttft_deadline_ms=500), Terms(deadline_ms=200), 100.2, "deadline_ms"),
        (Tier(deadline_ms=300), Terms(ttft_deadline_ms=2000), 100.3, "deadline_ms"),
        (Tier(deadline_ms=300), Terms(deadline_ms=9000), 109.0, "deadline_ms"),
    ],
)
def test_the_stricter_deadline_counts_and_is_named(tier: Tier, terms: Terms, due: float, bound: str) -> None:
    request = GenerationRequest("hi", None, Sampling(10), terms=terms)
    ticket = RequestState(request, [1, 2], Collector(), 100.0, tier=tier).ticket(1)
    assert ticket.ttft_deadline == pytest.approx(due)
    if due < math.inf:
        assert ticket.bound == bound


def test_equal_beginnings_are_equal_prefixes() -> None:
    long = GenerationRequest("x", None, Sampling(10))
    ids = list(range(100))
    one, other, third = (
        RequestState(long, tokens, Collector(), 0.0).ticket(1)
        for tokens in (ids, ids[:80] + [7] * 9, [5, *ids])
    )
    assert one.prefix == other.prefix != third.prefix


def traced(server: FakeServer, *, trace: bool) -> Collector:
    return server.submit(GenerationRequest("hello", None, Sampling(12), trace=trace)).wait()


def test_it_tells_every_step_in_order_and_each_text() -> None:
    with FakeServer() as server:
        sink = traced(server, trace=True)
    *before, last = map(columns, sink.deltas)
    assert not [one for one in before if "trace" in one], "only the last response has it"
    spans = read(last)
    steps = [one for one in spans if one["name"] != "text"]
    assert [one["name"] for one in steps] == ["tokenize", "admission", "queue", "first token", "next tokens"]
    for one, after in zip(steps, steps[1:], strict=False):
        assert one["begin"] <= one["end"] == after["begin"]
    texts = [one for one in spans if one["name"] == "text"]
    assert steps[3]["end"] == texts[0]["begin"]
    assert steps[4]["end"] == texts[-1]["begin"]
    assert texts[-1]["tokens"] == 12
    queued = sink.deltas[-1].note.queue_s * 1e9
    assert steps[2]["end"] - steps[0]["begin"] == pytest.approx(queued, abs=2)


def test_a_request_that_does_not_ask_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    class Counted(request_state.RequestTrace):
        def __init__(self, arrived: float) -> None:
            made.append(arrived)
            super().__init__(arrived)

    monkeypatch.setattr(request_state, "RequestTrace", Counted)
    with FakeServer() as server:
        sink = traced(server, trace=False)
        assert not made
        assert not [delta for delta in sink.deltas if "trace" in columns(delta)]
        traced(server, trace=True)
    assert len(made) == 1
