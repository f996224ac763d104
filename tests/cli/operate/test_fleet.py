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
SHORT = ("--prompt-tokens", "lognormal:12,1", "--output-tokens", "lognormal:36,1")
ARGUMENTS = ("--rate", "20", "--seconds", "20", *SHORT, "--prefixes", "30:2000:1:0")


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
    # Of three replicas, until the last answer.
    assert all(1 <= one["cost"] / (3 * 2.0 * 20 / 3600) < 1.3 for one in (apart, together))


def test_a_table(plans: Path) -> None:
    code, out, _ = call("fleet", plans, *ARGUMENTS)
    assert code == 0
    assert "by beginning" in out
    assert "TTFT p50" in out


def test_a_trace(plans: Path, tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    rows = "".join(f"2023-11-16 18:15:{number:02}.5,300,20\n" for number in range(50))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert [one["answered"] for one in figures(plans, "--trace", trace)] == [50, 50]
    assert [one["answered"] for one in figures(plans, "--trace", trace, "--seconds", "9.5")] == [10, 10]


def test_prompts_of_a_trace_that_begin_alike_share_what_all_of_them_have(plans: Path, tmp_path: Path) -> None:
    trace = tmp_path / "mooncake.jsonl"
    rows = [
        {
            "timestamp": 1000 * number,
            "input_length": 2000,
            "output_length": 9,
            "hash_ids": [7, 8, 100 + number],
        }
        for number in range(20)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, together = figures(plans, "--trace", trace)
    assert together["hit_rate"] == pytest.approx(19 * 1024 / (20 * 2000), rel=0.01)


def test_a_description_from_a_bench(tmp_path: Path) -> None:
    bench, out = tmp_path / "bench.json", tmp_path / "r.toml"
    bench.write_text(json.dumps({"cases": [case(1, 200), case(4, 200)]}))
    code, _, err = call("replica", bench, "--set", "num_kv_blocks=900", "-o", out)
    assert (code, err) == (0, "")
    assert "num_kv_blocks = 900" in out.read_text()
    (tmp_path / "plans.toml").write_text('replica = "r.toml"\n[[plan]]\nname = "one"\n')
    (one,) = figures(tmp_path / "plans.toml", "--rate", "5", "--seconds", "10", *SHORT)
    assert one["answered"] == one["requests"] > 0
    code, out_text, _ = call("replica", bench, "--set", "num_kv_blocks=900")
    assert out_text == out.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--trace FILE or --rate REQUESTS_A_SECOND: one of them is needed"),
        (("--rate", "5", "--trace", "t.csv"), "one of them is needed"),
        (("--rate", "5", "--burstiness", "0"), "--burstiness 0: above 0"),
        (("--rate", "5", "--lengths", "short"), "--lengths short: known are azure-conversation"),
        (("--rate", "5", "--prompt-tokens", "many"), "--prompt-tokens many"),
        (("--rate", "5", "--prefixes", "7"), "--prefixes 7: COUNT:TOKENS"),
        (("--rate", "5", "--prefixes", "7:0"), "COUNT and TOKENS from 1"),
        (("--rate", "5", "--slo", "itl_ms<=5"), "--slo itl_ms<=5: of each request ttft_ms, tpot_ms and"),
        (("--rate", "5", "--slo", "p99_ttft_ms<=5"), "--slo p99_ttft_ms<=5: of each request"),
        (("--trace", "none.csv"), "--trace none.csv: cannot be read"),
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
    assert "parameter 'num_kv_blocks'" in call("replica", bench)[2]
    assert "--set x: FIELD=VALUE is needed" in call("replica", bench, "--set", "x")[2]
