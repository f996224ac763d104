"""The bench of interrupted answers."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from trimodal.bench.interruption import Interruption, measure, show


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.build
def test_both_ways_end_the_generation() -> None:
    cancelled, spoken = asyncio.run(measure(turns=1))
    assert [len(times) for times in (cancelled.heard, cancelled.told, cancelled.over)] == [0, 1, 1]
    assert [len(times) for times in (spoken.heard, spoken.told, spoken.over)] == [1, 1, 1]
    # Either may be seen first: the generation does not end in the client's event.
    assert min(spoken.over[0], spoken.heard[0]) > 0


def test_what_is_shown() -> None:
    ways = [
        Interruption("cancel", [], [0.002], [0.041]),
        Interruption("speech", [0.133], [0.134], [0.165]),
    ]
    console = Console(file=io.StringIO(), width=120)
    show(ways, console)
    rows = [line.replace(" ", "").split("│") for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    shown = {row[1]: row[2:-1] for row in rows if len(row) > 1}
    assert shown["cancel"] == ["1", "", "", "2", "2", "41", "41", "", ""]
    assert shown["speech"] == ["1", "133", "133", "134", "134", "165", "165", "32", "32"]
