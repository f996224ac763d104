"""What is counted as good, and what a level's figures are, on results that are written down here."""

import math
from dataclasses import replace

import pytest

from trimodal.bench.overload.figures import spread, summarise_level, verdict_of
from trimodal.bench.overload.load import Asked, Result
from trimodal.bench.overload.machine import Memory
from trimodal.llm.tiers import Tier

PREMIUM = Tier(priority=10, ttft_deadline_ms=500, itl_bound_ms=200)
FREE = Tier()
TIERS = {"premium": PREMIUM, "free": FREE, "unused": FREE}


def result(tier="premium", **more):
    asked = Asked(0.0, tier, "x", 8, ttft_bound=0.5 if tier == "premium" else math.inf)
    values = {"outcome": "answered", "lag": 0.001, "ttft": 0.3, "gap": 0.1, "total": 1.0}
    return Result(asked, **(values | more))


def refused(seconds, **more):
    return result(outcome="refused", ttft=math.nan, gap=0.0, total=seconds, **more)


@pytest.mark.parametrize(
    ("one", "tier", "verdict"),
    [
        (result(), PREMIUM, "met"),
        (result(ttft=0.5, gap=0.2), PREMIUM, "met"),
        (result(ttft=0.501), PREMIUM, "late"),
        (result(ttft=0.6, gap=9.0), PREMIUM, "late"),
        (result(gap=0.201), PREMIUM, "uneven"),
        (result(ttft=99.0, gap=99.0), FREE, "met"),
        (refused(0.002), PREMIUM, "refused"),
        (result(outcome="expired", ttft=math.nan), PREMIUM, "expired"),
        (result(outcome="gave_up", ttft=0.1), PREMIUM, "lost"),
        (result(outcome="failed", ttft=0.1), PREMIUM, "lost"),
        (result(outcome="unsent", ttft=math.nan), PREMIUM, "lost"),
        (result(outcome="open", ttft=math.nan), PREMIUM, "lost"),
    ],
)
def test_verdicts(one, tier, verdict):
    assert verdict_of(one, tier) == verdict


def test_every_request_is_counted_once_and_goodput_is_over_the_level():
    results = [
        result(),
        result(tier="free", ttft=7.0),
        result(ttft=0.7),
        result(gap=0.3),
        refused(0.01),
        result(outcome="expired", ttft=math.nan),
        result(outcome="gave_up", ttft=math.nan),
    ]
    figures = summarise_level(results, TIERS, load=2.0, rate=0.7, seconds=10.0)
    premium, free = figures.tiers["premium"], figures.tiers["free"]
    counted = (premium.met, premium.late, premium.uneven, premium.refused, premium.expired, premium.lost)
    assert counted == (1, 1, 1, 1, 1, 1)
    assert premium.sent == sum(counted) == 6
    assert (free.sent, free.met) == (1, 1)
    assert "unused" not in figures.tiers
    assert (figures.load, figures.rate, figures.sent) == (2.0, 0.7, 7)
    assert figures.goodput == pytest.approx(0.2)


def test_what_ends_after_the_load_is_no_goodput():
    """Else a queue that is worked off afterwards would count as capacity."""
    early, late = result(), result()
    late = replace(late, asked=replace(late.asked, at=9.5))
    figures = summarise_level([early, late], TIERS, load=1, rate=1, seconds=10.0)
    assert figures.tiers["premium"].met == 2
    assert figures.goodput == pytest.approx(0.1)


def test_who_waits_in_vain_counts_as_longer_than_all_others():
    """Percentiles of the answered alone would look the better, the more were left without an answer."""
    answered = [result(ttft=0.1)] * 99
    hung = result(outcome="gave_up", ttft=math.nan)
    one = summarise_level([*answered, hung], TIERS, load=1, rate=1, seconds=1).tiers["premium"]
    assert one.ttft_p99 == pytest.approx(100)
    two = summarise_level([*answered, hung, hung], TIERS, load=1, rate=1, seconds=1).tiers["premium"]
    assert two.ttft_p99 is None
    assert two.ttft_p50 == pytest.approx(100)
    told = [refused(0.01)] * 50 + [result(outcome="expired", ttft=math.nan)] * 50
    one = summarise_level([*answered, *told], TIERS, load=1, rate=1, seconds=1).tiers["premium"]
    assert one.ttft_p99 == pytest.approx(100), "whom the server told does not wait"


def test_refusals_lag_and_what_the_client_could_not_send():
    results = [refused(0.004, retry_after=0.4, lag=0.001), refused(0.030, lag=0.025)]
    results += [result(outcome="unsent", lag=math.nan, ttft=math.nan)]
    results += [result(outcome="expired", ttft=math.nan, total=9.0, retry_after=3.0)]
    figures = summarise_level(results, TIERS, load=1, rate=1, seconds=1)
    assert figures.refusals.count == 2
    assert figures.refusals.most == pytest.approx(30)  # from when it was due, the lag is in it
    assert figures.served_refusals.most == pytest.approx(5)
    assert (figures.retry_after.count, figures.retry_after.p50) == (1, pytest.approx(400))
    assert figures.unsent == 1
    assert figures.lag.count == 3
    assert figures.lag.most == pytest.approx(25)


def test_forecasts_are_compared_from_when_a_request_was_sent():
    results = [
        result(lag=0.1, ttft=0.4, predicted=0.2),  # 300 ms seen, 200 foreseen
        result(lag=0.0, ttft=0.1, predicted=0.15),
        result(lag=0.0, ttft=0.1, predicted=0.07),
        result(),  # not foreseen
    ]
    figures = summarise_level(results, TIERS, load=1, rate=1, seconds=1)
    assert figures.forecast_error.count == 3
    assert figures.forecast_error.p50 == pytest.approx(50)
    assert figures.forecast_error.most == pytest.approx(100)
    assert figures.forecast_bias == pytest.approx(30)


def test_errors_are_kept_with_their_counts_and_memory_as_it_was():
    broken = result(outcome="failed", error="InternalError: the engine stopped")
    memory = {"before": Memory(1.0, 2.0)}
    figures = summarise_level([broken, broken], TIERS, load=1, rate=1, seconds=1, memory=memory)
    assert figures.errors == {"InternalError: the engine stopped": 2}
    assert figures.memory["before"].total == 3.0


def test_nothing_at_all_has_no_percentiles():
    assert spread([math.nan]) == spread([])
    empty = summarise_level([], TIERS, load=1, rate=1, seconds=1)
    assert (empty.goodput, empty.tiers, empty.forecast_bias, empty.lag.p99) == (0, {}, None, None)
