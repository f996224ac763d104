import math
import re

import pytest

from tests.llm.scheduler.engine_rig import practised, ticket
from trimodal.errors import Unavailable
from trimodal.llm.scheduler.deadlines import Deadlines
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.first_token import LoadShare
from trimodal.llm.scheduler.queue_simulation import FirstText
from trimodal.llm.scheduler.ticket import Ticket

DELIVERY = 0.010
"""Seconds from the engine to the client that are reckoned with."""


def make(speed: LatencyModel | None = None, now: float = 10.0) -> Deadlines:
    deadlines = Deadlines(speed or practised(), LoadShare(0.0), confidence=0.9, ageing_s=5.0)
    deadlines.retry_after.handed_over(now)
    return deadlines


def due(within: float, now: float = 10.0, prompt: int = 100) -> Ticket:
    each = ticket(1, prompt)
    each.arrived = now
    each.ttft_deadline = each.expires = now + within
    return each


def test_what_is_not_foreseen_is_let_in() -> None:
    deadlines, each = make(), due(0.001)
    deadlines.predict(each, None, 0, 10.0)
    deadlines.check(each, 10.0)
    assert math.isnan(each.predicted_ttft)


def test_time_since_arrival_counts() -> None:
    deadlines, each = make(), due(5.0)
    deadlines.predict(each, FirstText(1.0, 1.2), 0, now=10.5)
    assert each.predicted_ttft == pytest.approx(1.7)
    assert each.queued


def test_who_cannot_be_in_time_is_told_when_to_come_again() -> None:
    deadlines, each = make(), due(0.5)
    deadlines.predict(each, FirstText(1.8, 1.9), 0, 10.0)
    sentence = "the first text would come after 1900 ms: ttft_deadline_ms is 500; retry after 1.4 s"
    with pytest.raises(Unavailable, match=f"^{re.escape(sentence)}$") as refusal:
        deadlines.check(each, 10.0)
    assert refusal.value.retry_after_s == pytest.approx(1.4)


def test_who_has_no_deadline_is_never_refused() -> None:
    deadlines, each = make(), due(math.inf)
    deadlines.predict(each, FirstText(1e6, 1e6), 0, 10.0)
    deadlines.check(each, 10.0)


def test_a_prompt_that_is_too_long_for_its_deadline_is_told_so() -> None:
    deadlines, each = make(), due(0.5, prompt=20_000)
    deadlines.predict(each, FirstText(3.0, 4.0), 0, 10.0)
    with pytest.raises(
        Unavailable, match=r"20000 prompt tokens would come after \d+ ms even with nothing"
    ) as refusal:
        deadlines.check(each, 10.0)
    assert refusal.value.retry_after_s is None


def test_the_margin_of_late_answers_is_added() -> None:
    deadlines = make()
    for _ in range(20):
        late = due(5.0)
        deadlines.predict(late, FirstText(0.4, 0.5), 0, 10.0)
        deadlines.answered(late, 11.0)  # twice as long
    each = due(0.6)
    deadlines.predict(each, FirstText(0.4, 0.5), 0, 10.0)
    with pytest.raises(Unavailable, match="after 1000 ms"):
        deadlines.check(each, 10.0)


def test_refusals_let_one_through_in_a_while() -> None:
    """An engine that was slow once would be thought slow for ever if nothing were tried."""
    deadlines = make()
    each = due(0.5)
    deadlines.predict(each, FirstText(0.0, 0.9), 0, 11.9)
    with pytest.raises(Unavailable):
        deadlines.check(each, 11.9)
    deadlines.check(each, 12.0)
    assert each.trial
    queued = due(0.5)
    deadlines.predict(queued, FirstText(0.9, 1.0), 0, 12.0)
    with pytest.raises(Unavailable):  # a trial is for whom nothing is before
        deadlines.check(queued, 12.0)


def test_those_below_count_on_what_those_above_use() -> None:
    usage = LoadShare(0.0)
    for second in range(1, 60):
        usage.add(10, 0.5, float(second))
    deadlines = Deadlines(practised(), usage, confidence=0.9, ageing_s=1000.0)
    low, high = due(math.inf, now=60.0), due(math.inf, now=60.0)
    deadlines.predict(low, FirstText(1.0, 1.1), 0, 60.0)
    deadlines.predict(high, FirstText(1.0, 1.1), 10, 60.0)
    assert high.predicted_ttft == pytest.approx(1.1)
    assert low.predicted_ttft == pytest.approx(2.1, rel=0.1)


def test_the_soonest_first_text_has_the_usual_error_in_it() -> None:
    speed = practised()
    deadlines = make(speed)
    usual = deadlines.soonest(100, 1e6) - 1e6  # all errors are forgotten by then
    assert usual == pytest.approx(speed.ttft(100) + DELIVERY)
    for _ in range(20):
        speed.errors.add(0.004, 2e6)
    assert deadlines.soonest(100, 2e6) - 2e6 == pytest.approx(usual + 0.004)
    for _ in range(128):
        speed.errors.add(60.0, 2e6)
    assert deadlines.soonest(100, 2e6) - 2e6 == pytest.approx(2 * speed.ttft(100) + DELIVERY)
    assert make(LatencyModel()).soonest(100, 5.0) == 5.0


def test_who_was_missed_is_told_so_and_counts_as_an_error() -> None:
    deadlines, each = make(), due(0.5)
    deadlines.predict(each, FirstText(0.3, 0.4), 0, 10.0)
    deadlines.missed(each, 10.55, 10.45)
    assert each.problem == "ttft_deadline_ms cannot be kept any more after 450 ms in the queue"
    assert each.retry_after_s == pytest.approx(0.5 + 0.45)  # waited 0.45, late by 0.05; one turn
    for _ in range(7):  # a margin is learnt from eight errors
        deadlines.missed(each, 10.55, 10.45)
    assert deadlines.margin.seconds(each, each.predicted_ttft, 10.45) == pytest.approx(0.15)
