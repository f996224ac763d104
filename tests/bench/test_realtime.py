"""The bench of /v1/realtime."""

from __future__ import annotations

import io

from rich.console import Console

from trimodal.bench.realtime import Way, show


def test_what_is_shown() -> None:
    ways = [
        Way("gRPC", [0.8, 1.0], ["one two", "three"]),
        Way("vLLM's dialect", [0.81, 1.02], ["three", "one"]),
    ]
    console = Console(file=io.StringIO(), width=120)
    show(ways, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "+20" in shown
    assert "1 of 2" in shown
