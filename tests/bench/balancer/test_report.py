"""The bench of the balancer: ratios, what is shown, what is written."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest
from rich.console import Console
from typer import Typer
from typer.testing import CliRunner

from trimodal.bench.affinity import Way
from trimodal.bench.balancer.__main__ import Report, main, show
from trimodal.bench.balancer.load import Tally, speech
from trimodal.bench.balancer.parts import Disturbed, Served
from trimodal.speech.engines.fake import hear

ONE = Served(1, 40.0, 20.0, 4, 0.9, {"serve-1": 60, "serve-2": 0, "serve-3": 0})
THREE = Served(3, 116.0, 58.0, 12, 0.9, {"serve-1": 58, "serve-2": 58, "serve-3": 58})
KILLED = Disturbed(
    "one killed",
    Tally(Counter(text=30), Counter({"text ConnectionLost": 3}), {"text: the server went away"}, 80, 0, 2),
    4,
    [7.5],
)
REPORT = Report(
    [ONE, THREE], [Way("in turn", 1000, 300, [0.2]), Way("by prefix", 1000, 900, [0.1])], [KILLED]
)


def test_ratios_are_three_servers_against_one() -> None:
    found = REPORT.ratios()
    assert found == pytest.approx({"tokens_per_s": 2.9, "images_per_s": 2.9, "streams": 3, "prefix_hits": 3})
    assert Report([THREE]).ratios() == {}
    assert Report(ways=[Way("in turn"), Way("by prefix", 10, 5)]).ratios() == {}, "nothing to divide by"


def test_what_is_shown_and_written() -> None:
    console = Console(file=io.StringIO(), width=120)
    show(REPORT, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in (
        "116.0",
        "2.90",
        "58 58 58",
        "90.0%",
        "3.00 times",
        "3 text ConnectionLost",
        "4 requests were",
    ):
        assert text in shown, text
    written = json.loads(json.dumps(REPORT.plain()))
    assert written["disturbed"][0]["failed"] == {"text ConnectionLost": 3}
    assert written["prefix"][1] == {"way": "by prefix", "prompts": 1, "hit_rate": 0.9}


def test_a_part_that_is_not_asked_for_is_left_out() -> None:
    console = Console(file=io.StringIO(), width=120)
    show(Report(disturbed=[KILLED]), console)
    assert "behind the balancer" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_unknown_part_is_refused_before_a_server_starts() -> None:
    app = Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--part", "speed"])
    assert done.exit_code == 2
    assert "scale, prefix, restart, kill are" in " ".join(done.output.replace("│", " ").split())


def test_speech_says_what_it_claims() -> None:
    samples, said = speech(seed=4, words=10)
    assert [word.text for word in hear(samples)] == said
    assert len(said) == 10
