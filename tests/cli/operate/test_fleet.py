"""`trimodal plan fleet` and `trimodal plan replica` as they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.plan.fleet.test_from_bench import case
from trimodal.cli.app import app

REPLICA = """
step_ms = [[1, 10.0], [32, 20.0]]
prefill_us = 50
num_kv_blocks = 2000
max_num_seqs = 32
price_per_hour = 2.0
"""
PLANS = """
replica = "r.toml"
[[plan]]
name = "in turn"
policy = "round_robin"
replicas = 3
[[plan]]
name = "by beginning"
replicas = 3
"""
ARGUMENTS = ("--rate", "20", "--seconds", "20", "--lengths", "alpaca", "--prefixes", "30:2000:1:0")


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    (tmp_path / "r.toml").write_text(REPLICA)
    (tmp_path / "plans.toml").write_text(PLANS)
    return tmp_path / "plans.toml"


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def figures(*arguments: object) -> list[dict[str, Any]]:
    code, out, _ = call("fleet", *arguments, "--json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["plans"]
    return found


def test_plans_are_compared_on_the_same_requests(plans: Path) -> None:
    apart, together = figures(plans, *ARGUMENTS)
    assert (apart["name"], together["name"]) == ("in turn", "by beginning")
    assert apart["requests"] == together["requests"] > 300
    assert together["hit_rate"] > apart["hit_rate"] > 0
    assert apart["cost"] == together["cost"] == pytest.approx(3 * 2.0 * 20 / 3600, rel=0.02)


def test_a_table_and_a_page(plans: Path, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    code, out, _ = call("fleet", plans, *ARGUMENTS, "--html", page)
    assert code == 0
    assert "by beginning" in out
    assert "TTFT p50" in out
    html = page.read_text()
    assert html.count("<svg") == 3
    assert "Replicas over time" in html
    assert "What good requests cost" in html


def test_a_picture(plans: Path, tmp_path: Path) -> None:
    path = tmp_path / "fleet.png"
    assert call("fleet", plans, *ARGUMENTS, "--plot", path)[0] == 0
    from matplotlib import image

    height, width, _ = image.imread(path).shape
    assert width > 3 * height, "three panels side by side"


def test_a_picture_that_cannot_be_written_is_refused_at_once(plans: Path, tmp_path: Path) -> None:
    code, _, err = call("fleet", plans, *ARGUMENTS, "--plot", tmp_path / "none" / "x.png")
    assert code == 2
    assert "--plot" in err
    assert "Traceback" not in err


def test_jobs_change_nothing(plans: Path) -> None:
    assert figures(plans, *ARGUMENTS) == figures(plans, *ARGUMENTS, "--jobs", "2")


def test_a_trace(plans: Path, tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    rows = "".join(f"2023-11-16 18:15:{number:02}.5,300,20\n" for number in range(50))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert [one["answered"] for one in figures(plans, "--trace", trace)] == [50, 50]
    assert [one["answered"] for one in figures(plans, "--trace", trace, "--seconds", "9.5")] == [10, 10]


def test_a_description_from_a_bench(tmp_path: Path) -> None:
    bench, out = tmp_path / "bench.json", tmp_path / "r.toml"
    bench.write_text(json.dumps({"cases": [case(1, 200), case(4, 200)]}))
    code, _, err = call("replica", bench, "--set", "num_kv_blocks=900", "-o", out)
    assert (code, err) == (0, "")
    assert "num_kv_blocks = 900" in out.read_text()
    (tmp_path / "plans.toml").write_text('replica = "r.toml"\n[[plan]]\nname = "one"\n')
    (one,) = figures(tmp_path / "plans.toml", "--rate", "5", "--seconds", "10", "--lengths", "alpaca")
    assert one["answered"] == one["requests"] > 0
    code, out_text, _ = call("replica", bench, "--set", "num_kv_blocks=900")
    assert out_text == out.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--trace FILE or --rate REQUESTS_A_SECOND: one of them is needed"),
        (("--rate", "5", "--trace", "t.csv"), "one of them is needed"),
        (("--rate", "5", "--load", "tidal"), "--load tidal: known are poisson, gamma, diurnal"),
        (("--rate", "5", "--lengths", "short"), "--lengths short: known are azure-conversation"),
        (("--rate", "5", "--prompt-tokens", "many"), "--prompt-tokens many"),
        (("--rate", "5", "--prefixes", "7"), "--prefixes 7: COUNT:TOKENS"),
        (("--rate", "5", "--prefixes", "7:0"), "COUNT and TOKENS from 1"),
        (("--rate", "5", "--slo", "itl_ms<=5"), "--slo itl_ms<=5: of each request ttft_ms, tpot_ms and"),
        (("--rate", "5", "--slo", "p99_ttft_ms<=5"), "--slo p99_ttft_ms<=5: of each request"),
        (("--trace", "none.csv"), "none.csv: no such file"),
    ],
)
def test_what_is_wrong_is_one_sentence(plans: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, _, err = call("fleet", plans, *arguments)
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err


def test_a_wrong_field_of_a_replica(tmp_path: Path) -> None:
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps({"cases": [case(1, 200)]}))
    assert "num_kv_blocks: is missing" in call("replica", bench)[2]
    assert "--set x: FIELD=VALUE is needed" in call("replica", bench, "--set", "x")[2]
