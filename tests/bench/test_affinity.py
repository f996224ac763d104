"""The bench of prefix affinity, on real servers with the fake engine."""

import asyncio
import io

import pytest
from rich.console import Console

from trimodal.bench.affinity import Way, measure, show

ENGINE = {"engine": "fake", "fake_step_ms": "0", "max_prompt_tokens": "16000"}


@pytest.mark.slow
@pytest.mark.e2e
def test_both_ways_ask_the_same_chats() -> None:
    apart, together = asyncio.run(measure(6, 3, ENGINE))
    assert (len(apart.ttft), len(together.ttft)) == (12, 12)
    assert apart.prompt == together.prompt > 0
    assert apart.cached < together.cached < together.prompt


def test_what_is_shown() -> None:
    ways = [Way("in turn", 1000, 300, [0.2]), Way("by beginning", 1000, 900, [0.1])]
    console = Console(file=io.StringIO(), width=120)
    show(ways, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "90.0%" in shown
    assert "3.00 times" in shown
    assert Way("in turn").hit_rate == 0
