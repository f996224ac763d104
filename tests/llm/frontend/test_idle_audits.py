"""Audits beside the engine's work for clients: when one begins, and what ends it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from tests.llm.doubles.audits import STORED, PlayedAudits
from tests.llm.doubles.sinks import Collector
from trimodal.llm.engines.protocol import EngineRequest, Output, Sampling
from trimodal.llm.frontend import idle_audits
from trimodal.llm.frontend.idle_audits import IDLE_S, MAX_TRIES, MAX_WAITING, PATIENCE_S, IdleAudits
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.tokenizer import ByteTokenizer


class Rig:
    """An engine that notes what it is told, and a clock that stands still."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.given: list[EngineRequest] = []
        self.now = 0.0
        self.audits = PlayedAudits()
        client = SimpleNamespace(add=self._add, cancel=lambda id: self.told.append(f"cancel {id}"))
        engine = SimpleNamespace(client=client)
        self.idle = IdleAudits(self.audits, engine, ByteTokenizer(), itertools.count(1), lambda: self.now)  # type: ignore[arg-type]

    def _add(self, request: EngineRequest) -> None:
        self.told.append(f"add {request.id}")
        self.given.append(request)

    def offer(self, stops: tuple[str, ...] = ()) -> None:
        request = GenerationRequest("hello", None, Sampling(10), stops)
        self.idle.offer(RequestState(request, list(b"hello"), Collector(), 0.0), STORED)

    def begin(self, after: float = IDLE_S) -> None:
        """No request is there for so long."""
        self.idle.begin()
        self.now += after
        self.idle.begin()


def test_it_begins_when_no_request_was_there_for_a_moment_and_one_at_a_time() -> None:
    rig = Rig()
    rig.offer()
    rig.offer()
    rig.begin(after=IDLE_S / 2)
    assert rig.told == []
    rig.begin()
    rig.begin()
    assert rig.told == ["add 1"]


def test_the_moment_is_counted_from_the_end_of_the_last_request() -> None:
    """It was from the coming of it: an audit began in each gap between long answers."""
    rig = Rig()
    rig.offer()
    rig.idle.interrupt()
    rig.now += 10 * IDLE_S  # its answer
    rig.begin(after=IDLE_S / 2)
    assert rig.told == []
    rig.begin()
    assert rig.told == ["add 1"]


def test_it_finds_the_blocks_that_its_question_found() -> None:
    rig = Rig()
    request = GenerationRequest("hello", None, Sampling(10))
    state = RequestState(request, list(b"hello"), Collector(), 0.0, cache_salt="acme", public_tokens=4)
    rig.idle.offer(state, STORED)
    rig.begin()
    assert [(one.cache_salt, one.public_tokens) for one in rig.given] == [("acme", 4)]


def test_a_whole_answer_is_handed_over_and_the_next_one_begins() -> None:
    rig = Rig()
    rig.offer()
    rig.offer()
    rig.begin()
    rig.idle.take([Output(1, list(b"ab")), Output(7, list(b"x"), "stop")])
    rig.idle.take([Output(1, list(b"c"), "stop")])
    assert rig.audits.finished == [(STORED, "abc", "stop")]
    assert rig.audits.tokens == 5 + 3
    rig.begin()
    assert rig.told == ["add 1", "add 2"]


def test_the_token_that_ends_it_is_not_part_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteTokenizer, "ends", frozenset(b"$"))
    rig = Rig()
    rig.offer()
    rig.begin()
    rig.idle.take([Output(1, list(b"$9$"), "stop")])
    assert rig.audits.finished == [(STORED, "$9", "stop")]


def test_what_it_continues_is_before_its_answer() -> None:
    rig = Rig()
    request = GenerationRequest("hello", None, Sampling(10))
    rig.idle.offer(RequestState(request, list(b"hello"), Collector(), 0.0, context=list(b"hello")), STORED)
    rig.begin()
    assert rig.idle._text._detokenizer._ids == list(b"hello")
    rig.idle.take([Output(1, list(b" you"), "stop")])
    assert rig.audits.finished == [(STORED, " you", "stop")]


def test_a_stop_string_ends_it_in_the_engine_too() -> None:
    rig = Rig()
    rig.offer(stops=("b",))
    rig.begin()
    rig.idle.take([Output(1, list(b"abc"))])
    assert rig.audits.finished == [(STORED, "a", "stop")]
    assert rig.told == ["add 1", "cancel 1"]


def test_a_request_ends_it_and_it_is_tried_again_a_few_times() -> None:
    rig = Rig()
    rig.offer()
    for number in range(1, MAX_TRIES + 1):
        rig.begin()
        rig.idle.interrupt()
        assert rig.told[-2:] == [f"add {number}", f"cancel {number}"]
        rig.idle.take([Output(number, list(b"late"), "stop")])
    rig.begin()
    assert len(rig.told) == 2 * MAX_TRIES
    assert rig.audits.reasons == ["interrupted"]
    assert rig.audits.finished == []


def test_who_waits_too_long_is_dropped_with_its_reason() -> None:
    rig = Rig()
    rig.offer()
    rig.begin(after=PATIENCE_S + 1)
    assert rig.told == []
    assert rig.audits.reasons == ["busy"]


def test_a_full_queue_takes_no_more() -> None:
    rig = Rig()
    for _ in range(MAX_WAITING + 2):
        rig.offer()
    assert rig.audits.reasons == ["queue"] * 2


def test_a_lost_engine_takes_it_along() -> None:
    rig = Rig()
    rig.offer()
    rig.offer()
    rig.begin()
    rig.idle.lost()
    rig.begin()
    assert (rig.told, rig.audits.reasons) == (["add 1", "add 2"], ["failed"])


@pytest.mark.parametrize("output", [Output(1, [], "error", error="no"), Output(1, list(b"ab"), "stop")])
def test_what_fails_is_dropped_and_the_engine_goes_on(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    rig.offer()
    rig.begin()
    if output.finish_reason == "stop":
        monkeypatch.setattr(idle_audits.TextStream, "push", lambda *arguments, **options: 1 / 0)
    rig.idle.take([output])
    assert rig.audits.reasons == ["failed"]
    assert rig.audits.tokens > 0, "they are counted"
    assert rig.audits.finished == []
