from __future__ import annotations

import math

import pytest

from tests.llm.scheduler.engine_rig import info, practised, settings, ticket
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.estimators.answer_lengths import AnswerLengths
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.first_token import FirstTokenForecast, LoadShare, PrefixHits
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.scheduler.queue_simulation import FirstText
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import WaitingQueue
from trimodal.llm.tiers import Tier


class Situation:
    """An engine of known speed, those who run and those who wait; every answer has max_tokens tokens."""

    def __init__(self, blocks: int = 1000, seqs: int = 4, known: bool = True) -> None:
        self.speed = practised() if known else LatencyModel()
        self.lengths = AnswerLengths()
        for _ in range(20):
            self.lengths.learn("a", 64, 64, finished=True)
        self.books = Admission(settings(), info(blocks, seqs))
        self.order = WaitingQueue(1000.0)
        self.running: list[Ticket] = []
        self.pace = PrefillBudget(self.speed, self.running, 4096)
        self.forecast = FirstTokenForecast(self.speed, self.lengths, self.pace)

    def run(self, each: Ticket, made: int) -> None:
        assert self.books.reserve(each)
        self.speed.started(each)
        each.started, each.first_token, each.completion_tokens = 1.0, 1.5, made
        self.speed.first(each, 1.5)
        self.running.append(each)

    def wait(self, *tickets: Ticket) -> None:
        for each in tickets:
            self.order.add(each)

    def ask(self, each: Ticket) -> FirstText | None:
        lines = self.order.before(each)
        return self.forecast.first_text(lines, each, self.running, self.books)

    def foreseen(self, each: Ticket) -> FirstText:
        found = self.ask(each)
        assert found
        return found


def test_nothing_is_foreseen_of_an_unknown_engine() -> None:
    assert Situation(known=False).ask(ticket(1)) is None


def test_an_idle_engine_answers_at_its_prefill_speed() -> None:
    situation = Situation()
    foreseen = situation.foreseen(ticket(1, 200))
    assert foreseen.wait == 0
    assert foreseen.first == situation.speed.alone(200)


def test_a_full_batch_is_waited_for() -> None:
    """The stream that is nearest to its end has 10 tokens to go."""
    situation = Situation()
    for id in range(4):
        situation.run(ticket(id), made=id * 10 + 10)
    foreseen = situation.foreseen(ticket(9))
    assert foreseen.wait == pytest.approx(10 * situation.speed.gap(4), rel=0.01)
    assert foreseen.first == pytest.approx(foreseen.wait + situation.speed.ttft(100), rel=0.1)


def test_each_one_before_takes_a_slot() -> None:
    situation = Situation()
    for id in range(4):
        situation.run(ticket(id), made=id * 10 + 10)
    situation.wait(ticket(5), ticket(6))
    gap = situation.speed.gap(4)
    # Slots are free after 10, 20 and 30 tokens; two prompts of 100 are computed meanwhile.
    expected = 30 * gap + 200 * situation.speed.prefill_s
    assert situation.foreseen(ticket(9)).wait == pytest.approx(expected, rel=0.01)
    urgent = ticket(10, tier=Tier(priority=1), name="b")
    assert situation.foreseen(urgent).wait == pytest.approx(10 * gap, rel=0.01)


def test_blocks_are_waited_for_as_slots_are() -> None:
    situation = Situation(blocks=20)
    for id in range(2):
        situation.run(ticket(id, 200, 56), made=id * 20 + 10)  # 8 blocks each
    small, big = ticket(8, 90, 30), ticket(9, 300, 56)  # 4 and 12 blocks
    assert situation.foreseen(small).wait == 0
    assert situation.foreseen(big).wait == pytest.approx(26 * situation.speed.gap(2), rel=0.01)


def test_a_tier_that_is_short_of_its_share_holds_up_only_itself() -> None:
    situation = Situation(blocks=40)
    scant = Tier(kv_share=0.25)  # 10 blocks; each ticket has 5
    situation.run(ticket(1, tier=scant, name="scant"), made=10)
    situation.run(ticket(2, tier=scant, name="scant"), made=20)
    situation.wait(ticket(3, tier=scant, name="scant"))
    assert situation.foreseen(ticket(9)).wait == 0
    later = situation.foreseen(ticket(10, tier=scant, name="scant"))
    assert later.wait > 30 * situation.speed.gap(2) * 0.99


def test_pace_delays_what_it_holds_back() -> None:
    situation = Situation(seqs=64)
    chat = Tier(itl_bound_ms=50)
    situation.run(ticket(1, tier=chat), made=10)
    limit = int(situation.pace.limit())
    at_once = situation.foreseen(ticket(9, 10))
    situation.wait(ticket(2, limit), ticket(3, limit), ticket(4, limit))
    paced = situation.foreseen(ticket(9, 10))
    assert at_once.wait == 0
    assert paced.wait >= 3 * limit * situation.speed.ttft_weights[1]


def test_what_never_fits_is_not_foreseen() -> None:
    assert Situation(blocks=3).ask(ticket(1)) is None


def test_a_very_long_queue_is_foreseen_in_proportion() -> None:
    situation = Situation()
    for id in range(4):
        situation.run(ticket(id), made=1)
    for id in range(10, 210):
        situation.wait(ticket(id))
    short = situation.foreseen(ticket(9999)).wait
    for id in range(210, 2010):
        situation.wait(ticket(id))
    assert situation.foreseen(ticket(9999)).wait == pytest.approx(10 * short, rel=0.1)


def test_lengths_that_differ_make_the_first_of_many_end_early() -> None:
    """16 streams, each with 60 tokens to come on average: one of them ends long before that."""
    situation = Situation(seqs=16)
    situation.lengths = AnswerLengths()
    for number in range(400):
        situation.lengths.learn("a", 1 + int(-60 * math.log(1 - (number * 0.618) % 1)), 1000, finished=True)
    situation.forecast = FirstTokenForecast(situation.speed, situation.lengths, situation.pace)
    for id in range(16):
        situation.run(ticket(id, tokens=1000), made=5)
    assert situation.foreseen(ticket(99, tokens=1000)).wait < 12 * situation.speed.gap(16)


def used(share: float) -> LoadShare:
    """Priority 10 used a share of the engine in each of 120 s."""
    usage = LoadShare(0.0)
    for second in range(1, 121):
        usage.add(10, share, float(second))
    return usage


def test_the_share_of_those_above() -> None:
    usage = used(0.5)
    assert usage.above(0, 120.0) == pytest.approx(0.5, abs=0.02)
    assert usage.above(10, 120.0) == 0


def test_the_share_is_right_from_the_first_seconds_on() -> None:
    usage = LoadShare(0.0)
    for second in range(1, 6):
        usage.add(10, 0.5, float(second))
    assert usage.above(0, 5.0) == pytest.approx(0.5, abs=0.08)


def test_it_fades() -> None:
    assert used(0.5).above(0, 240.0) < 0.02


def test_a_wait_is_stretched_by_those_above() -> None:
    usage = used(0.5)
    assert usage.stretched(1.0, 0, 5.0, 120.0) == pytest.approx(2.0, rel=0.05)
    assert usage.stretched(1.0, 10, 5.0, 120.0) == 1.0
    assert usage.stretched(0.0, 0, 5.0, 120.0) == 0.0


def test_it_ends_when_age_has_raised_the_class_even_if_those_above_take_all() -> None:
    usage = used(1.2)
    assert usage.above(0, 120.0) == 1
    assert usage.stretched(1.0, 0, 5.0, 120.0) == pytest.approx(10 * 5.0 + 1.0)
    assert usage.stretched(1.0, -100, 0.001, 120.0) == pytest.approx(1.11)


def test_what_was_spared_once_is_foreseen_again_for_the_latest_prompts() -> None:
    prefixes = PrefixHits()
    assert prefixes.uncached(7, 100) == 100
    prefixes.learn(7, 64)
    prefixes.learn(0, 64)  # an unnamed beginning teaches nothing
    assert [prefixes.uncached(prefix, 100) for prefix in (7, 8, 0)] == [36, 100, 100]
    assert prefixes.uncached(7, 10) == 1, "a shorter prompt still has one token to compute"
    for prefix in range(8, 10_000):
        prefixes.learn(prefix, 50)
    assert [prefixes.uncached(prefix, 100) for prefix in (7, 9_999)] == [100, 50]
    prefixes.clear()
    assert prefixes.uncached(9_999, 100) == 100
