from __future__ import annotations

import pytest

from tests.bench.load.records import answer, record
from trimodal.bench.load.slo import Bound, parse_slo
from trimodal.errors import SettingsError


def test_bounds_of_requests_and_of_the_run_are_told_apart() -> None:
    slo = parse_slo("ttft_ms<=500, itl_ms<=60,p99_ms<=2000,mean_tpot_ms<=50,error_rate<=0.01")
    assert slo.of_requests == (Bound("ttft", 500), Bound("itl", 60))
    assert slo.of_run == (Bound("latency", 2000, "p99"), Bound("tpot", 50, "mean"), Bound("error_rate", 0.01))
    assert slo.text == "ttft_ms<=500,itl_ms<=60,p99_ms<=2000,mean_tpot_ms<=50,error_rate<=0.01"
    assert parse_slo(slo.text) == slo


def test_a_good_request_keeps_every_bound_with_every_gap() -> None:
    slo = parse_slo("ttft_ms<=500,itl_ms<=60")
    assert slo.good(answer(0.0, 0.4, [0.05, 0.06]))
    assert not slo.good(answer(0.0, 0.6, [0.05]))
    assert not slo.good(answer(0.0, 0.4, [0.05, 0.07, 0.05]))
    assert not slo.good(answer(0.0, 0.4, outcome="unavailable"))


def test_a_percentile_has_one_name() -> None:
    assert parse_slo("p99.90_ms<=5,p05_ms<=5").text == "p99.9_ms<=5,p5_ms<=5"


def test_latency_has_two_names() -> None:
    assert parse_slo("ms<=5").bounds == parse_slo("latency_ms<=5").bounds
    assert not parse_slo("ms<=900").good(record(latency=1.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ttft<=5", "'ttft' is no metric: known are ms, latency_ms, ttft_ms"),
        ("ttft_ms>=5", "a form as"),
        ("ttft_ms<=soon", "'soon' is no limit"),
        ("ttft_ms<=-1", "is no limit"),
        ("ttft_ms<=inf", "is no limit"),
        ("error_rate<=5", "a share of the whole run"),
        ("p99_error_rate<=0.1", "a share of the whole run"),
        ("p100_ms<=5", "no metric"),
    ],
)
def test_other_texts_are_refused(text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        parse_slo(text)
