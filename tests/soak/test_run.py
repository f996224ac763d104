"""What a reload excuses, and percentiles window by window."""

from __future__ import annotations

import pytest

from tests.soak.load import REFUSED, Kind
from tests.soak.run import WINDOWS, Reload, Soak
from tests.soak.slopes import judge
from trimodal.bench.load.records import OK, TIMEOUT, Record

TOTAL = 3600.0


async def never(number: int) -> Record:
    raise AssertionError("nothing is sent")


def record(due: float, outcome: str = OK, latency: float = 0.1) -> Record:
    return Record(0, due, due, (), due + latency, outcome)


TEXT, BAD = Kind("text", 1.0, never), Kind("bad input", 1.0, never, REFUSED)


def test_a_reload_excuses_unavailable_and_nothing_else() -> None:
    soaked = Soak(TOTAL, reloads=[Reload("llm", 100.0, 110.0)])
    soaked.records["text"] = [record(105, "unavailable"), record(105, TIMEOUT), record(500, "unavailable")]
    soaked.records["text"] += [record(95, "unavailable", latency=6.0), record(500)]
    soaked.records["bad input"] = [record(500, "invalid_arg"), record(105)]
    meanwhile, wrong = soaked.surprises([TEXT, BAD])
    assert meanwhile == {"text: unavailable: ": 2}
    assert wrong == {"text: timeout: ": 1, "text: unavailable: ": 1, "bad input: ok: ": 1}


def test_percentiles_are_of_each_window() -> None:
    soaked = Soak(TOTAL)
    # Every hundredth request takes a second; the others take 50 ms longer after an hour.
    for due in range(int(TOTAL)):
        latency = 1.0 if due % 100 == 99 else 0.1 + 0.05 * due / TOTAL
        soaked.records["text"].append(record(due, latency=latency))
    found = {one.kind: one for one in soaked.latencies([TEXT])}
    assert found.keys() == {"p50", "p95", "p99"}
    assert [len(one.values) for one in found.values()] == [WINDOWS] * 3
    verdict = judge(found["p50"], TOTAL)
    assert verdict.word == "grows"
    assert verdict.slope == pytest.approx(50, rel=0.05)
    assert found["p50"].times[0] == TOTAL / WINDOWS / 2


def test_a_process_that_outlives_its_reload_is_told() -> None:
    soaked = Soak(TOTAL, reloads=[Reload("llm", 100.0, 110.0)])
    soaked.points["threads", "llm #1"] = [(0.0, 9.0), (500.0, 9.0)]
    soaked.points["threads", "llm engine #1"] = [(0.0, 9.0), (100.0, 9.0)]
    soaked.points["threads", "llm #2"] = [(108.0, 9.0), (500.0, 9.0)]
    soaked.points["threads", "vision #1"] = [(0.0, 9.0), (500.0, 9.0)]
    assert soaked.left_over() == ["llm #1 still runs 390 s after llm was unloaded and loaded"]
