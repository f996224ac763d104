"""Audits beside the engine's work for clients: when one begins, what ends it, and what it may cost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.llm.doubles.audits import PlayedAudits, decision
from tests.llm.doubles.sinks import Collector
from trimodal.llm.engines.protocol import EngineRequest, Output, Sampling
from trimodal.llm.frontend import idle_audits
from trimodal.llm.frontend.idle_audits import IDLE_S, MAX_TRIES, MAX_WAITING, PATIENCE_S, IdleAudits
from trimodal.llm.frontend.request_state import RequestState
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.tokenizer import ByteTokenizer

HIT = decision(hit=True)


class Rig:
    """An engine that notes what it is told, and a clock that stands still."""

    def __init__(self, share: float = 1.0, credit: int = 1000) -> None:
        self.told: list[str] = []
        self.now = 0.0
        self.audits = PlayedAudits(share)
        self.last = 0
        client = SimpleNamespace(add=self._add, cancel=lambda id: self.told.append(f"cancel {id}"))
        engine = SimpleNamespace(client=client)
        self.idle = IdleAudits(self.audits, engine, ByteTokenizer(), self._id, lambda: self.now)  # type: ignore[arg-type]
        ticket = SimpleNamespace(prompt_tokens=credit, cached_tokens=0, completion_tokens=0)
        self.idle.served([SimpleNamespace(ticket=ticket)])  # type: ignore[list-item]

    def _id(self) -> int:
        self.last += 1
        return self.last

    def _add(self, request: EngineRequest) -> None:
        self.told.append(f"add {request.id}")

    def offer(self, max_tokens: int = 10, stops: tuple[str, ...] = ()) -> None:
        request = GenerationRequest("hello", None, Sampling(max_tokens), stops)
        self.idle.offer(RequestState(request, list(b"hello"), Collector(), 0.0), HIT)

    def begin(self, after: float = IDLE_S) -> None:
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


def test_a_whole_answer_is_handed_over_and_the_next_one_begins() -> None:
    rig = Rig()
    rig.offer()
    rig.offer()
    rig.begin()
    rig.idle.take([Output(1, list(b"ab")), Output(7, list(b"x"), "stop")])
    rig.idle.take([Output(1, list(b"c"), "stop")])
    assert rig.audits.finished == [(HIT, "abc", "stop")]
    assert rig.audits.tokens == 5 + 3
    rig.begin()
    assert rig.told == ["add 1", "add 2"]


def test_a_stop_string_ends_it_in_the_engine_too() -> None:
    rig = Rig()
    rig.offer(stops=("b",))
    rig.begin()
    rig.idle.take([Output(1, list(b"abc"))])
    assert rig.audits.finished == [(HIT, "a", "stop")]
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


def test_its_tokens_are_at_most_the_share_of_those_of_clients() -> None:
    rig = Rig(share=0.02, credit=1499)
    rig.offer(max_tokens=25)  # and 5 of its prompt: 30 are 2 % of 1,500
    rig.begin()
    assert rig.told == []
    ticket = SimpleNamespace(prompt_tokens=5, cached_tokens=5, completion_tokens=1)
    rig.idle.served([SimpleNamespace(ticket=ticket)])  # type: ignore[list-item]
    rig.begin()
    assert rig.told == ["add 1"]
    rig.idle.take([Output(1, list(b"ab"), "stop")])
    rig.offer(max_tokens=18)  # what the first one did not use is there again
    rig.begin()
    assert rig.told == ["add 1", "add 2"]


def test_one_that_needs_more_than_is_left_keeps_no_other_waiting() -> None:
    rig = Rig(credit=20)
    rig.offer(max_tokens=500)
    rig.offer(max_tokens=10)
    rig.begin()
    assert rig.told == ["add 1"]
    rig.idle.take([Output(1, list(b"ab"), "stop")])
    rig.begin()
    assert rig.told == ["add 1"]


def test_who_waits_too_long_is_dropped_with_its_reason() -> None:
    rig = Rig(credit=14)
    rig.offer(max_tokens=10)
    rig.offer(max_tokens=9)
    rig.begin(after=PATIENCE_S + 1)
    assert rig.told == []
    assert rig.audits.reasons == ["budget", "busy"]


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
    assert rig.audits.tokens > 0, "its account is settled"
    assert rig.audits.finished == []
