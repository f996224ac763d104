"""What is printed of levels and what is said of the goals, missed ones included."""

import io

import pytest
from rich.console import Console

from tests.bench.overload.test_figures import TIERS, refused, result
from trimodal.bench.overload.figures import summarise_level
from trimodal.bench.overload.machine import Memory
from trimodal.bench.overload.tables import print_tables, statements


def level(load, results, **more):
    return summarise_level(results, TIERS, load=load, rate=10 * load, seconds=10.0, **more)


def said(*levels, **others):
    return statements({"deadline": levels, **others}, TIERS)


def test_goals_that_are_met():
    told = said(level(1, [result()] * 10), level(10, [result()] * 9 + [refused(0.049)]))
    assert told[0] == "met: goodput at 10× is 0.90/s, 0.90 of its peak of 1.00/s at 1× (goal: 0.9)"
    assert told[1] == (
        "met: p99 TTFT of tier premium at 10× is 300 ms (bound: 500 ms); of 9 let in 0 expired in the queue "
        "and were told so"
    )
    assert told[-1] == (
        "met: the slowest refusal came 49.0 ms after its request was due, from its sending 48.0 ms at most "
        "(goal: below 50)"
    )


def test_goals_that_are_missed_are_said_to_be():
    told = said(level(1, [result()] * 10), level(10, [result()] * 8 + [result(ttft=0.9), refused(0.051)]))
    assert told[0].startswith("MISSED: goodput at 10× is 0.80/s, 0.80 of its peak")
    assert told[1].startswith(
        "MISSED: p99 TTFT of tier premium at 10× is 900 ms (bound: 500 ms); of 9 let in"
    )
    assert told[-1].startswith("MISSED: the slowest refusal came 51.0 ms after")


def test_levels_without_any_request_are_not_judged():
    assert said(level(0.01, []), level(0.02, [])) == []
    told = said(level(0.01, []), level(1, [result()] * 10), level(2, [result()] * 9))
    assert told[0].startswith("met: goodput at 2× is 0.90/s, 0.90 of its peak of 1.00/s at 1×")


def test_a_high_tier_that_got_no_text_is_beyond_all_bounds():
    hung = result(outcome="gave_up", ttft=float("nan"))
    expired = result(outcome="expired", ttft=float("nan"))
    told = said(level(1, [result()]), level(2, [hung, expired]))
    assert told[1].startswith("MISSED: p99 TTFT of tier premium at 2× is beyond all bounds (bound: 500 ms)")
    assert told[1].endswith("of 2 let in 1 expired in the queue and were told so")


def test_what_makes_figures_doubtful_is_told_of_every_side():
    unsent = result(outcome="unsent", ttft=float("nan"), lag=float("nan"))
    slow = [result(lag=0.2)] * 10
    failed = result(outcome="failed", error="ConnectionLost: the server went away")
    told = said(level(1, slow, others=0.34), fifo=[level(2, [unsent, unsent, failed])])
    assert any("deadline at 1×: this client could not keep the rate" in one for one in told)
    assert "deadline at 1×: other processes took 34% of this machine's CPU time" in told
    assert not any("other processes" in one for one in said(level(1, [result()], others=0.09)))
    assert any(one.startswith("fifo at 2×: 2 requests were not sent") for one in told)
    assert "fifo at 2×: 1 requests ended with ConnectionLost: the server went away" in told


def test_forecasts_and_memory_of_the_highest_load_are_told():
    memory = {"before": Memory(100, 20), "most": Memory(150, 30), "after": Memory(110, 20)}
    foreseen = [result(predicted=0.25)] * 3
    told = said(level(1, [result()]), level(10, foreseen, memory=memory))
    assert "TTFT foreseen at 10×, 3 answers: off by 49 ms at p50, 49 ms at p90" in told
    assert "memory of server and engine at 10×, before → most → after: 120 → 180 → 130 MiB" in told


def test_one_level_alone_has_no_peak_and_nothing_is_no_error():
    assert said(level(1, [result()])) == []
    assert said() == []


@pytest.mark.parametrize("width", [80, 160])
def test_tables_have_a_row_for_each_side_level_and_tier(width):
    out = io.StringIO()
    sides = {
        "deadline": [level(1, [result(), result(tier="free"), refused(0.02)])],
        "fifo": [level(1, [result(outcome="gave_up", ttft=float("nan"))])],
    }
    print_tables(sides, Console(file=out, width=width))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert ["1×", "deadline", "premium", "2", "1", "0", "0", "1", "0", "0", "300", "300"] in rows
    assert ["1×", "fifo", "premium", "1", "0", "0", "0", "0", "0", "1", "-", "-"] in rows
    assert ["1×", "deadline", "10.0", "0.20", "20", "20", "20", "-"] in rows
