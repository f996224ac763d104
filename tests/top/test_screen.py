from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.top.pages import served
from trimodal.top.figures import Embedding, Figures, Gateway, Latency, Speech, Vision, figures
from trimodal.top.screen import Source, screen

HERE = Source("server", "localhost:8002")
SLOW = Latency(1e-5, 0.02, 4.0, 3.0)


def everything() -> Figures:
    return replace(
        figures(served(100, bad=20), None, {"llm": True}),
        speech=Speech(SLOW, SLOW, SLOW, 2, 12.5, 0.34, 1.5, 0),
        vision=Vision(SLOW, SLOW, 10, 4, 1),
        embedding=Embedding(SLOW, 12_345, 8, 0),
        gateway=Gateway(SLOW, SLOW, SLOW, 10, 3, 0, 1, 0),
    )


def drawn(shown: Figures, width: int, *sources: Source) -> str:
    console = Console(width=width, color_system=None, record=True, file=io.StringIO())
    console.print(screen(shown, list(sources or (HERE,)), width=width, interval=2, now=0.0))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 200])
def test_every_part_is_shown_and_no_line_is_too_long(width: int) -> None:
    text = drawn(everything(), width)
    for part in ("llm", "speech", "vision", "embedding", "gateway", "models", "TTFT", "ITL", "lag", "KV"):
        assert part in text
    for value in ("12.3k texts/s", "10 µs", "20 ms", "4 s", "34% speech", "2 errors/s", "20 engine restarts"):
        assert value in text
    assert max(map(len, text.splitlines())) <= width


def test_a_server_that_is_away_is_told_with_the_reason() -> None:
    away = replace(HERE, away="connection refused", since=0.0)
    text = drawn(figures(None, None, {}), 120, away)
    assert "localhost:8002 is away since" in text
    assert "connection refused" in text


def test_models_that_are_not_ready_are_named() -> None:
    assert "not ready: llm" in drawn(figures(served(), None, {"llm": False}), 80)
    assert "1 models ready" in drawn(figures(served(), None, {"llm": True}), 80)
    assert "not ready: llm@2" in drawn(figures(served(), None, {"llm": True, "llm@2": False}), 80)
    assert "nobody tells" in drawn(figures(served(), None, {}), 80)


def test_a_percentile_above_its_objective_is_marked() -> None:
    shown = everything()
    assert shown.speech
    console = Console(width=80, force_terminal=True, color_system="standard", record=True, file=io.StringIO())
    console.print(screen(shown, [HERE], width=80, interval=2, now=0.0))
    lag = next(line for line in console.export_text(styles=True).splitlines() if line.startswith("lag"))
    assert lag.count("\x1b[1;33m") == 1, "p99 alone is above 3 s"
