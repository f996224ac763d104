"""The bench of the gateway, on a real server with the fake engine."""

import asyncio
import io

import pytest
from rich.console import Console

from trimodal.bench.gateway.__main__ import cost, run, show
from trimodal.bench.gateway.loads import Burst, Loop, Taken
from trimodal.bench.gateway.ways import Way, over_http


@pytest.mark.slow
@pytest.mark.e2e
def test_both_ways_get_every_delta() -> None:
    loop, burst = Loop(2, (4, 8), 0.02, 1.0), Burst(3, 8)
    results = asyncio.run(run([loop, burst], step_ms=20, turns=1))
    for load in (loop, burst):
        assert [way.name for way in results[load]] == ["gRPC", "gateway"]
    for taken in results[burst].values():
        # Deltas of a slow reader are joined: at most one a token.
        assert len(taken.ttft) == 3
        assert 3 <= taken.deltas <= 24
    for way, taken in results[loop].items():
        assert len(taken.ttft) >= 4
        assert taken.deltas >= 2 * len(taken.ttft)
        assert taken.cpu_s >= 0 if way.pid else taken.cpu_s == 0


def test_what_is_shown() -> None:
    direct = Way("gRPC", over_http("http://localhost:1"))
    gateway = Way("gateway", over_http("http://localhost:1"), 1, direct)
    before = Taken([0.02, 0.03], [0.04], deltas=10, seconds=2.0)
    after = Taken([0.021, 0.034], [0.04], deltas=10, seconds=2.0, cpu_s=0.01)
    console = Console(file=io.StringIO(), width=120)
    show({Burst(4, 8): {direct: before, gateway: after}}, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "+1.0" in shown
    assert "+4.0" in shown
    assert "1,000" in shown, "deltas of a core"


def test_a_request_and_its_deltas_are_told_apart() -> None:
    short = Taken([0.1] * 10, deltas=10, cpu_s=0.02)
    long = Taken([0.1] * 4, deltas=104, cpu_s=0.028)
    assert cost(short, long).startswith("2.00 ms of a core for a request of one token, 200 µs")
