"""`trimodal plan fleet` as it is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.plan.fleet.test_from_bench import case, written
from trimodal.cli.app import app
from trimodal.gateway.tables import read_tables
from trimodal.plan.fleet.spec import ReplicaFigures

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


def test_a_trace(plans: Path, tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    rows = "".join(f"2023-11-16 18:15:{number:02}.5,300,20\n" for number in range(50))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert [one["answered"] for one in figures(plans, "--trace", trace)] == [50, 50]
    assert [one["answered"] for one in figures(plans, "--trace", trace, "--seconds", "9.5")] == [10, 10]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--trace FILE or --rate REQUESTS_A_SECOND: one of them is needed"),
        (("--rate", "5", "--trace", "t.csv"), "one of them is needed"),
        (("--rate", "5", "--prompt-tokens", "many"), "--prompt-tokens many"),
        (("--rate", "5", "--prefixes", "7"), "--prefixes 7: COUNT:TOKENS"),
        (("--rate", "5", "--prefixes", "7:0"), "COUNT and TOKENS from 1"),
        (("--rate", "5", "--slo", "itl_ms<=5"), "--slo itl_ms<=5: of each request ttft_ms, tpot_ms and"),
        (("--rate", "5", "--slo", "p99_ttft_ms<=5"), "--slo p99_ttft_ms<=5: of each request"),
        (("--trace", "none.csv"), "--trace none.csv: cannot be read"),
        (("--trace", "t.csv", "--prefixes", "5:100"), "--prefixes is of arrivals that are made: a trace has"),
        (("--trace", "t.csv", "--output-tokens", "64"), "--output-tokens is of arrivals that are made"),
    ],
)
def test_what_is_wrong_is_one_sentence(plans: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, _, err = call("fleet", plans, *arguments)
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err


def test_a_measured_replica_is_printed_as_a_file_that_can_be_simulated(tmp_path: Path) -> None:
    files = [written(tmp_path, case(1, 200), case(8, 200)), written(tmp_path, case(1, 400), name="long.json")]
    code, told, err = call("replica", *files, "--set", "num_kv_blocks=4096")
    assert (code, err) == (0, "")
    assert told.startswith("# Measured: bench.json, long.json\n")
    file = tmp_path / "replica.toml"
    file.write_text(told)
    found = read_tables(file, ReplicaFigures, ReplicaFigures)
    assert found.num_kv_blocks == 4096
    assert dict(found.step_ms)[8] == pytest.approx(18, rel=0.1)
    code, _, err = call("replica", *files, "--set", "num_kv_blocks")
    assert (code, "FIELD=VALUE is needed" in err) == (1, True)
