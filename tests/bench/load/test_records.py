from __future__ import annotations

import pytest

from tests.bench.load.records import record


def test_times_count_from_when_a_request_was_due() -> None:
    one = record(due=2.0, sent=2.5, pieces=[3.0, 3.25, 4.0], ended=4.5, output_tokens=4)
    assert one.latency == 2.5
    assert one.ttft == 1.0
    assert one.itl == (0.25, 0.75)
    assert one.tpot == pytest.approx(1.5 / 3)


def test_the_clocks_times_become_times_of_the_run() -> None:
    one = record(due=0.0, sent=105.0, pieces=[106.0], ended=107.0)
    assert one.since(100.0, 7, 104.0) == record(7, 4.0, sent=5.0, pieces=[6.0], ended=7.0)
    assert one.since(100.0, 7).due == 5.0
