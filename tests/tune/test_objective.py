"""One objective, bounds of an SLO, and what a run is worth under both."""

from __future__ import annotations

import pytest

from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import Record
from trimodal.bench.load.slo import parse_slo
from trimodal.bench.load.statistics import Summary, summarise
from trimodal.errors import SettingsError
from trimodal.tune.objective import judge, parse_objective, violation
from trimodal.tune.search import Round


def run(latencies: list[float], failed: int = 0) -> LoadRun:
    """One request after the other, each so many seconds long; the last ones fail."""
    records, at = [], 0.0
    for number, latency in enumerate(latencies):
        outcome = "unavailable" if number >= len(latencies) - failed else "ok"
        records.append(Record(number, at, at, (at + latency / 2,), at + latency, outcome, output_tokens=4))
        at += latency
    return LoadRun(tuple(records), 0.0, at)


def summary_of(one: LoadRun, slo: str, maximize: str | None = None, minimize: str | None = None) -> Summary:
    bounds = parse_slo(slo)
    objective = parse_objective(maximize, minimize, bounds)
    return summarise(one, bounds, (objective.statistic,))


def worth(one: LoadRun, slo: str = "", maximize: str | None = None, minimize: str | None = None) -> Round:
    bounds = parse_slo(slo)
    objective = parse_objective(maximize, minimize, bounds)
    summary = summary_of(one, slo, maximize, minimize)
    value = objective.value(summary)
    assert value is not None
    return judge(summary, bounds, objective, value)


def test_throughput_is_the_objective_when_none_is_named() -> None:
    one = worth(run([0.1] * 50), "p99_ms<=200")
    assert one.gain == pytest.approx(10)
    assert one.violation == 0
    assert one.figures["p99_ms"] == pytest.approx(100)


def test_a_missed_bound_counts_by_its_share() -> None:
    assert worth(run([0.3] * 50), "p99_ms<=200").violation == pytest.approx(0.5)
    assert worth(run([0.3] * 50), "p99_ms<=200,p50_ttft_ms<=100").violation == pytest.approx(1.0)


def test_a_bound_on_each_request_must_hold_for_99_percent() -> None:
    assert worth(run([0.1] * 199 + [0.9]), "ms<=200").violation == 0
    assert worth(run([0.1] * 90 + [0.9] * 10), "ms<=200").violation == pytest.approx(0.09)
    # Goodput counts those that keep it.
    good = worth(run([0.1] * 90 + [0.9] * 10), "ms<=200", maximize="goodput")
    assert (good.violation, good.gain) == (0, pytest.approx(90 / 18))


@pytest.mark.parametrize(
    ("failed", "slo", "kept"), [(1, "", True), (20, "", False), (20, "error_rate<=0.3", True)]
)
def test_errors_are_a_bound_by_themselves(failed: int, slo: str, kept: bool) -> None:
    assert (worth(run([0.1] * 100, failed), slo).violation == 0) == kept


def test_a_share_of_requests_is_named_as_such() -> None:
    """It stood below `ttft_ms`, as milliseconds do."""
    figures = worth(run([0.1] * 9 + [0.9]), "ms<=200,p99_ms<=900").figures
    assert figures["kept latency_ms<=200"] == 0.9
    assert "latency_ms" not in figures


def test_what_is_refused_keeps_no_bound_and_fewer_need_to_where_the_slo_allows_it() -> None:
    assert worth(run([0.1] * 99 + [0.9], failed=1), "ms<=200").violation == 0
    both = run([0.1] * 50 + [0.9] + [0.1] * 49, failed=1)
    assert worth(both, "ms<=200").violation == pytest.approx(0.01)
    assert worth(run([0.1] * 100, failed=30), "ms<=200,error_rate<=0.3").violation == 0


def test_what_is_minimised_gains_by_less() -> None:
    slow, fast = worth(run([0.4] * 50), minimize="p90_ms"), worth(run([0.2] * 50), minimize="p90_ms")
    assert fast.gain > slow.gain
    assert fast.gain == pytest.approx(-200)
    # The objective's own statistic is no bound.
    assert slow.violation == 0
    assert worth(run([0.2] * 50), minimize="p77_ttft_ms").gain == pytest.approx(-100)


def test_a_run_without_the_metric_has_no_worth() -> None:
    bounds = parse_slo("")
    objective = parse_objective(None, "p99_lag_ms", bounds)
    assert objective.value(summary_of(run([0.1] * 5), "", minimize="p99_lag_ms")) is None
    # As a bound it is missed.
    assert (
        violation(summary_of(run([0.1] * 5), "p99_lag_ms<=9"), parse_slo("p99_lag_ms<=9"), objective) == 1.0
    )


@pytest.mark.parametrize(
    ("maximize", "minimize", "slo", "why"),
    [
        ("speed", None, "", "--maximize speed: known are throughput"),
        ("goodput", None, "p99_ms<=5", "needs a bound on each request"),
        ("streams", None, "", "--maximize streams needs a bound to keep"),
        (None, "ttft_ms", "", "known are statistics"),
        (None, "nonsense", "", "known are statistics"),
        ("goodput", "p99_ms", "", "one of them"),
    ],
)
def test_refuses_what_is_no_objective(maximize: str | None, minimize: str | None, slo: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        parse_objective(maximize, minimize, parse_slo(slo))
