"""Load tests as a user calls them: refusals at once, and one of a model with its fake engine."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from trimodal.cli.app import app


def run(*arguments: object) -> Result:
    environment = {"COLUMNS": "120", "TERM": "dumb"}
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env=environment)


def said(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["llm", "--load", "sine"], "--load sine: known are closed, constant, poisson, gamma, trace"),
        (["llm", "--load", "poisson"], "how many requests a second? --rate 4"),
        (["llm", "--rate", "0"], "--rate 0: above 0"),
        (["llm", "--load", "trace"], "--load trace: name its file with --trace FILE"),
        (["llm", "--trace", "/nowhere.csv"], "--trace /nowhere.csv: cannot be read"),
        (["llm", "--load", "gamma", "--rate", "1", "--burstiness", "0"], "--burstiness 0: a number above 0"),
        (["llm", "--load", "closed", "--slo", "speed<=5"], "'speed' is no metric: known are ms"),
        (["llm", "--slo", "ttft_ms<=5"], "--slo is of a load test: say --load closed, or which load"),
        (["llm", "--html", "report.html"], "--html is of a load test"),
        (["llm", "--load", "closed", "--waterfall"], "--waterfall is a part of --html's report"),
        (["llm", "--load", "closed", "--seconds", "3", "--requests", "3"], "one of them"),
        (["llm", "--load", "closed", "--streams", "5000"], "a closed loop of 5000 clients: 1 to 4096"),
        (["llm", "--load", "closed", "--prompt-tokens", "zipf:3"], "--prompt-tokens zipf:3: 64, uniform:"),
        (["llm", "--prompt-tokens", "uniform:8-9"], "distributions of lengths are of a load test"),
        (["llm", "--load", "closed", "--shared-prefix", "2:3"], "--shared-prefix 2:3: SHARE:TOKENS"),
        (["llm", "--load", "closed", "--html", "/nowhere/r.html"], "--html /nowhere/r.html: no file can be"),
        (
            ["llm", "--url", "127.0.0.1:1", "--bare"],
            "--bare runs on this machine's own model",
        ),
        (["llm", "--url", "http://h/v1/completions"], "only /v1/chat/completions is known"),
        (["llm", "--url", "127.0.0.1:1"], "no server at 127.0.0.1:1"),
        (["vision", "--url", "http://127.0.0.1:1"], "this bench goes over gRPC: host:port is needed"),
        (["vision", "--load", "closed", "--torch"], "are no load tests"),
        (["embedding", "--rate", "5", "--bare"], "own model in closed loops"),
        (["speech", "--load", "closed", "--capacity"], "are no load tests"),
        (["assistant", "--image-size", "big"], "--image-size big"),
        (["cache", "--load", "closed", "--layer", "all"], "--layer all: known are exact, semantic"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code in (1, 2), result.output
    assert sentence in said(result)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", ["llm", "vision", "speech", "embedding", "assistant", "cache"])
def test_help_groups_the_options_of_load(name: str) -> None:
    shown = run(name, "--help").output
    for text in ("Load", "Server", "Report", "--burstiness", "--max-in-flight", "--cost-per-hour"):
        assert text in shown
    assert ("--run-seconds" in shown) == (name in ("vision", "speech", "embedding"))


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a load test that ends well; gives its JSON."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))

    def measure(*arguments: object) -> dict[str, Any]:
        files = [
            part for name in ("json", "csv", "jsonl") for part in (f"--{name}", tmp_path / f"out.{name}")
        ]
        result = run(*arguments, *files)
        assert result.exit_code == 0, result.output
        return dict(json.loads((tmp_path / "out.json").read_text()))

    return measure


@pytest.mark.slow
@pytest.mark.e2e
def test_the_fake_engines_delays_are_measured_beside_it(report: Any, tmp_path: Path) -> None:
    """A step of 50 ms for each token: no answer can be shorter, on either side."""
    fake = ("--set", "engine=fake", "--set", "fake_step_ms=50", "--set", "fake_prefill_us=0")
    load = ("--load", "constant", "--rate", "2", "--seconds", "3", "--warmup", "1", "--max-tokens", "8")
    page = tmp_path / "report.html"
    asked = ("--bare", "--slo", "tpot_ms<=1,error_rate<=0", "--cost-per-hour", "1", "--waterfall")
    found = report("llm", *fake, *load, *asked, "--html", page)
    assert [case["side"] for case in found["cases"]] == ["served", "bare"]
    for case in found["cases"]:
        assert (case["requests"], case["ok"], case["outcomes"]) == (6, 6, {"ok": 6})
        assert case["metrics"]["latency_ms"]["least"] >= 7 * 50 - 5
        assert case["goodput"] == 0
        assert [verdict["met"] for verdict in case["verdicts"]] == [False, True]
    for part in ("Timeline", "Waterfall", "The four parts", " more tokens"):
        assert part in page.read_text()
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["side"] for row in rows] == ["served", "bare"]
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(records) == 2 * 8, "those of the warm-up too"
    assert all(record["output_tokens"] == 8 for record in records)


@pytest.mark.slow
@pytest.mark.e2e
def test_a_cache_answers_what_was_asked_before(report: Any) -> None:
    fake = ("--set", "engine=fake", "--set", "fake_step_ms=5", "--set", "fake_answer=An answer.")
    load = ("--load", "closed", "--streams", "1", "--requests", "40", "--repeat-share", "0.5")
    found = report("cache", *fake, *load, "--max-tokens", "64")
    sides = {case["side"]: case for case in found["cases"]}
    assert set(sides) == {"served", "hits", "misses"}
    assert sides["hits"]["requests"] + sides["misses"]["requests"] == 40
    assert sides["served"]["more"]["exact_hit_rate"] > 0
