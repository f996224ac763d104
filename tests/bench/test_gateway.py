"""The bench of the gateway, on a real server with the fake engine."""

import asyncio
import io

import pytest
from rich.console import Console

from trimodal.bench.gateway import Level, Side, measure, show


@pytest.mark.slow
@pytest.mark.e2e
def test_both_ways_get_every_delta() -> None:
    (level,) = asyncio.run(measure((2,), turns=1, tokens=8))
    assert [len(side.ttft) for side in (level.direct, level.gateway)] == [2, 2]
    # Deltas of a slow reader are joined: at most one a token.
    assert 2 <= level.gateway.deltas <= 16
    assert level.cpu_s >= 0


def test_what_is_shown() -> None:
    level = Level(4, Side([0.02, 0.03], 10), Side([0.021, 0.034], 10), cpu_s=0.01)
    assert level.added_ms(50) == pytest.approx(1.0)
    assert level.deltas_per_core_s == 1000
    console = Console(file=io.StringIO(), width=120)
    show([level], console)
    assert "+1.0" in console.file.getvalue()  # type: ignore[attr-defined]
    assert Level(1).deltas_per_core_s == 0
