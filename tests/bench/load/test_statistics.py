from __future__ import annotations

import pytest

from tests.bench.load.records import answer, record, run_of
from trimodal.bench.load.slo import parse_slo
from trimodal.bench.load.statistics import summarise


def test_known_delays_come_out() -> None:
    records = [answer(0.1 * n, 0.2 + 0.001 * n, [0.05] * 9, number=n) for n in range(100)]
    summary = summarise(run_of(records, 10.0))
    assert summary.metrics["ttft_ms"].percentiles["p50"] == pytest.approx(249.0)
    assert summary.metrics["itl_ms"].count == 900
    assert summary.metrics["itl_ms"].percentiles["p99"] == pytest.approx(50.0)
    assert summary.metrics["tpot_ms"].mean == pytest.approx(50.0)


def test_requests_at_the_windows_edges_count_for_their_part() -> None:
    # One client, a request a second, the window from 0.5 to 2.5: two requests' worth of work.
    records = [record(n, float(n), 1.0, items=3) for n in range(4)]
    summary = summarise(run_of(records, 2.0, began=0.5))
    assert summary.requests_per_s == pytest.approx(1.0)
    assert summary.items_per_s == pytest.approx(3.0)
    assert summary.in_flight == pytest.approx(1.0)


def test_tokens_count_where_they_came() -> None:
    summary = summarise(run_of([answer(0.0, 0.5, [1.0] * 3, input_tokens=8)], 2.0))
    assert summary.output_tokens_per_s == pytest.approx(2 / 2.0)


def test_warm_up_is_in_no_percentile() -> None:
    slow, quick = record(0, 0.0, 9.0), record(1, 10.0, 1.0)
    assert summarise(run_of([slow, quick], 5.0, began=10.0)).metrics["latency_ms"].most == 1e3
    assert summarise(run_of([slow, quick], 20.0, first=1)).requests == 1


def test_goodput_counts_good_requests() -> None:
    records = [
        answer(0.0, 0.1),
        answer(1.0, 0.9),
        record(2, 2.0, outcome="timeout", error="late"),
        record(3, 4.0, outcome="unsent"),
    ]
    summary = summarise(run_of(records, 10.0), parse_slo("ttft_ms<=500,p50_ttft_ms<=50,error_rate<=0.5"))
    assert summary.goodput == pytest.approx(1 / 10)
    assert summary.good_share == pytest.approx(1 / 4)
    assert summary.error_rate == pytest.approx(2 / 4)
    assert summary.errors == {"timeout: late": 1, "unsent: ": 1}
    each, p50, errors = summary.verdicts
    assert (each.value, each.met) == (0.25, False), "what was not answered kept no objective"
    assert (p50.value, p50.met) == (pytest.approx(100.0), False)
    assert (errors.value, errors.met) == (0.5, True)


def test_goodput_counts_the_part_of_a_request_that_is_inside_the_window() -> None:
    """Else a queue that is worked off when no load comes any more would look like capacity."""
    records = [answer(0.0, 0.5, [0.5]), answer(9.5, 0.5, [0.5]), answer(9.5, 0.5, [2.5])]
    summary = summarise(run_of(records, 10.0), parse_slo("ttft_ms<=500,itl_ms<=600"))
    assert summary.goodput == pytest.approx((1 + 0.5) / 10)
    assert summary.good_share == pytest.approx(2 / 3)


def test_a_percentile_that_no_default_has_can_be_bound() -> None:
    records = [record(n, 0.0, n / 1000) for n in range(1, 1001)]
    (verdict,) = summarise(run_of(records, 1.0), parse_slo("p99.9_ms<=999")).verdicts
    assert (verdict.value, verdict.met) == (pytest.approx(999.0), True)


def test_a_bound_on_what_no_answer_has_is_not_kept() -> None:
    """Images have no lag: nobody could break the bound."""
    (verdict,) = summarise(run_of([record(latency=0.1)], 10.0), parse_slo("lag_ms<=1")).verdicts
    assert (verdict.value, verdict.met) == (None, False)
    few = summarise(run_of([record(latency=0.1), answer(1.0, 0.1, [0.05])], 10.0), parse_slo("itl_ms<=60"))
    assert few.verdicts[0].met, "one token has no gap"


def test_a_run_without_any_answer_has_no_figures_and_does_not_fail() -> None:
    nothing = summarise(run_of([], 1.0), parse_slo("ms<=5,p99_ms<=5"))
    assert nothing.metrics == {}
    assert [(verdict.value, verdict.met) for verdict in nothing.verdicts] == [(None, False)] * 2
    assert summarise(run_of([record(outcome="internal", error="x")], 1.0)).error_rate == 1.0
