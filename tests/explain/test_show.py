"""The same waterfall in the terminal and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from trimodal.explain.show import as_json, show
from trimodal.explain.values import Part, Piece, Span, Waterfall


def span(name: str, begin: float, end: float, depth: int, part: Part, place: str) -> Span:
    return Span(name, begin / 1e3, end / 1e3, part, place, depth)


WATERFALL = Waterfall(
    "assistant",
    "“a question”, the image a.png",
    "“an answer of several words”",
    0.1,
    [
        span("client → server", 0, 10, 0, "network", "client"),
        span("server", 10, 90, 0, "processing", "Triton"),
        span("queue", 10, 20, 1, "queue", "assistant"),
        span("hear", 20, 50, 1, "processing", "assistant"),
        span("recognise 2.0 s", 25, 50, 2, "processing", "speech_recognize"),
        span("queue", 25, 25.4, 3, "queue", "speech_recognize"),
        span("compute", 25.4, 50, 3, "processing", "speech_recognize"),
        span("see", 20, 30, 1, "processing", "assistant"),
        span("answer with a name that is much longer than a row", 50, 90, 1, "processing", "assistant"),
        span("server → client", 90, 100, 0, "response", "client"),
    ],
    [Piece(0.03), Piece(0.06, "an ", 0.055), Piece(0.1, "answer", 0.08)],
    ["the client's clock", "Triton's trace"],
    ["what a reader has to know"],
    facts=[("prompt tokens", "9")],
)


@pytest.fixture
def screen() -> str:
    file = io.StringIO()
    show(WATERFALL, Console(file=file, width=80, color_system=None))
    return file.getvalue()


def test_rows_are_at_most_80_wide_and_hold_what_is_in_what(screen: str) -> None:
    lines = screen.splitlines()
    rows = [line for line in lines[2:] if line.endswith(" ms")]
    assert max(map(len, lines[2:])) <= 80
    names = [row[:34].rstrip() for row in rows if not row.startswith(" " * 30)]
    assert names[:8] == [
        "client → server",
        "server",
        "  queue",
        "  hear",
        "    speech_recognize: recognise 2…",
        "      compute",
        "  see",
        "  answer with a name that is much…",
    ]


def test_bars_stand_where_the_time_was(screen: str) -> None:
    bars = {line[:34].strip(): line[36:69] for line in screen.splitlines() if line.endswith(" ms")}
    assert bars["client → server"] == "███▎".ljust(33)
    assert bars["server → client"] == "▐███".rjust(33)
    assert len(bars["server"].strip()) in (26, 27, 28)
    assert bars["see"].index("▐") == bars["hear"].index("▐") == 6


def test_the_parts_add_up_in_words_too(screen: str) -> None:
    for told in (
        "assistant: “a question”, the image a.png → “an answer of several words”",
        "100.00 ms · first text after 60.00 ms · prompt tokens 9",
        "network          10.00 ms  10.0%",
        "queue            10.40 ms  10.4%",
        "processing       69.60 ms  69.6%",
        "response         10.00 ms  10.0%",
        "total           100.00 ms",
        "3 pieces reach the client",
        "‖ runs beside another",
        "What a reader has to know.",
        "Not drawn, as shorter than 0.5 %: 1 of the steps that --json lists.",
        "From the client's clock, Triton's trace.",
    ):
        assert told in " ".join(screen.split("\n")), told


def test_json_holds_all_of_it() -> None:
    told = json.loads(json.dumps(as_json(WATERFALL)))
    assert told["total_ms"] == 100
    assert sum(told["parts_ms"].values()) == pytest.approx(100)
    assert sum(one["counted_ms"] for one in told["spans"]) == pytest.approx(100)
    hear = next(one for one in told["spans"] if one["name"] == "hear")
    assert (hear["begin_ms"], hear["end_ms"], hear["overlaps"], hear["depth"]) == (20, 50, True, 1)
    assert told["pieces"][1] == {"text": "an ", "made_ms": 55, "received_ms": 60}
