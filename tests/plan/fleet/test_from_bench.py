"""A description from a bench: of figures that follow from a known engine it finds the engine again."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.bench.runs import answering, results_of
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.report import names_of, write_json
from trimodal.errors import SettingsError
from trimodal.gateway.tables import read_tables
from trimodal.plan.fleet.from_bench import as_toml, describe_replica, read_points
from trimodal.plan.fleet.spec import ReplicaFigures

PREFILL, OVERHEAD = 50e-6, 0.004
BUDGET = 500
GIVEN = {"num_kv_blocks": 1000, "max_num_batched_tokens": BUDGET}


def step(batch: float) -> float:
    return 0.010 + 0.001 * batch


def case(clients: int, prompt: int, output: int = 100, **changes: Any) -> dict[str, Any]:
    """A closed loop on an engine whose step takes 10 ms and 1 ms a sequence, and has 500 tokens at most."""
    steps = math.ceil(prompt / BUDGET)
    ttft = OVERHEAD + steps * step(1) + PREFILL * prompt
    # While a stream makes its tokens each of the others has so many prompts computed: t = n × (step + …).
    tpot = step(clients)
    for _ in range(50):
        rate = clients / (ttft + (output - 1) * tpot)
        tpot = step(clients) / (1 - PREFILL * rate * prompt * (1 - 1 / clients))
    return {
        "case": f"{clients} clients",
        "side": "served",
        "requests_per_s": rate,
        "input_tokens_per_s": rate * prompt,
        "output_tokens_per_s": rate * output,
        "cached_share": 0.0,
        "in_flight": clients,
        "metrics": {
            "tpot_ms": {"percentiles": {"p50": 1e3 * tpot}},
            "ttft_ms": {"percentiles": {"p50": 1e3 * ttft}},
        },
        **changes,
    }


def written(tmp_path: Path, *cases: Any, name: str = "bench.json") -> Path:
    file = tmp_path / name
    file.write_text(json.dumps({"facts": {}, "slo": "", "cases": cases}))
    return file


def test_step_times_prefill_and_overhead_are_found_again(tmp_path: Path) -> None:
    file = written(tmp_path, case(1, 200), case(1, 1000), case(4, 200), case(8, 200))
    found = describe_replica(read_points(file), GIVEN, file)
    assert found.prefill_us == pytest.approx(50, rel=0.02)
    assert found.overhead_ms == pytest.approx(4.0, abs=0.3)
    assert dict(found.step_ms) == pytest.approx({1: 11.0, 4: 14.0, 8: 18.0}, rel=0.02)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, case(1, 200), case(4, 200), {"side": "bare"})
    found = describe_replica(read_points(file), {**GIVEN, "price_per_hour": "2.5"}, file)
    (tmp_path / "r.toml").write_text(as_toml(found, "Measured: bench.json"))
    assert read_tables(tmp_path / "r.toml", ReplicaFigures, ReplicaFigures) == found
    assert found.price_per_hour == 2.5


def test_the_json_of_a_real_load_test(tmp_path: Path) -> None:
    """As `trimodal bench llm --json` writes it, of a server with TTFT 100 ms and gaps of 10 ms."""
    plan = LoadPlan(load="closed", sizes=(1, 4), seconds=60)
    results = results_of(plan, served=answering(0.1, 0.01, 99), bare=answering(0.2, 0.02, 99))
    cases = [{**names_of(one), **asdict(one.summary)} for one in results]
    file = tmp_path / "bench.json"
    write_json(file, {"facts": {}, "slo": "", "cases": cases})
    found = describe_replica(read_points(file), GIVEN, file)
    assert found.prefill_us == pytest.approx(1e6 * (0.1 - 0.01) / 64, rel=0.05)
    assert dict(found.step_ms)[1] == pytest.approx(10.0, rel=0.02)


@pytest.mark.parametrize(
    ("cases", "given", "sentence"),
    [
        ([{"side": "bare"}], GIVEN, "cases: none of side 'served'"),
        ([7], GIVEN, r"cases\.0: a number is missing"),
        ([case(1, 9, metrics={})], GIVEN, r"cases\.0: a number is missing \('tpot_ms'\)"),
        ([case(1, 9, requests_per_s=0)], GIVEN, r"cases\.0\.requests_per_s: nothing was answered"),
        (2 * [case(1, 9, input_tokens_per_s=0)], GIVEN, r"input_tokens_per_s: no prompt token .*\(usage\)"),
        ([case(1, 9)], {}, "parameter 'num_kv_blocks'.*Field required"),
        ([case(1, 9)], {**GIVEN, "speed": "1"}, "unknown parameter 'speed'"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, cases: list[Any], given: dict[str, Any], sentence: str
) -> None:
    file = written(tmp_path, *cases)
    with pytest.raises(SettingsError, match=sentence):
        describe_replica(read_points(file), given, file)
