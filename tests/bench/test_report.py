from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.load.records import answer, record, run_of
from tests.bench.runs import answering, results_of
from tests.doubles.full_disk import ROOM, full_disk
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import parse_slo
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report import (
    IMAGES,
    TOKENS,
    doubts,
    error_table,
    main_table,
    ratio_table,
    slo_table,
    write_json,
)
from trimodal.errors import SettingsError
from trimodal.report.console import print_table

SLO = parse_slo("ttft_ms<=500,itl_ms<=60,p99_ms<=4000")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    plan = LoadPlan("poisson", (2.0, 6.0, 9.0), seconds=10.0, warmup=1.0, rounds=2, slo=SLO)
    return results_of(plan, served=answering(0.12, 0.04, 8, 6), bare=answering(0.1, 0.04, 8, 6))


def cells(table: object, case: str, side: str) -> list[str]:
    (row,) = (row for row in table.rows if row[:2] == [case, side])  # type: ignore[attr-defined]
    return list(row)


def test_the_first_table_has_rates_goodput_and_errors(results: list[Result]) -> None:
    table = main_table("By case", TOKENS, results, SLO)
    assert len(table.rows) == 6
    row = dict(zip(table.columns, cells(table, "poisson 2/s", "served"), strict=True))
    assert float(row["req/s"]) == pytest.approx(2.0, rel=0.3)
    assert float(row["tokens/s"]) == pytest.approx(20 * float(row["req/s"]), rel=0.05)
    assert 96 <= float(row["TTFT p50"]) <= 144
    assert float(row["ITL p50"]) == pytest.approx(40, rel=0.03)
    assert (row["good"], row["errors"]) == ("100%", "0%")
    busy = dict(zip(table.columns, cells(table, "poisson 9/s", "served"), strict=True))
    assert float(busy["TTFT p99"]) > 500
    assert busy["errors"] != "0%"


def test_one_side_has_no_column(results: list[Result]) -> None:
    """It took the room of the figures' names on a narrow terminal."""
    table = main_table("By case", TOKENS, [one for one in results if one.side == "served"], SLO)
    assert (table.names, table.columns[:2], table.rows[0][0]) == (1, ["case", "req/s"], "poisson 2/s")


def test_no_head_of_a_column_is_folded_within_a_word(results: list[Result]) -> None:
    """`latenc` stood above `y p90` on a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80)
    served = [one for one in results if one.side == "served"]
    print_table(main_table("Images", IMAGES, served, parse_slo("ms<=500")), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    head = "case req/s images/s good/s good p50 p90 p95 p99 errors"
    assert shown.splitlines()[1].split() == head.split()
    assert "Latency in ms; good: requests that keep latency_ms<=500" in shown


def test_objectives_are_marked(results: list[Result]) -> None:
    table = slo_table(results)
    assert table
    assert table.columns[2:] == ["ttft_ms<=500", "itl_ms<=60", "p99_ms<=4000"]
    assert cells(table, "poisson 2/s", "served")[2:4] == ["100% ✓", "100% ✓"]
    assert cells(table, "poisson 9/s", "served")[2].endswith("✗")


def test_sides_are_held_against_the_first(results: list[Result]) -> None:
    table = ratio_table(TOKENS, results)
    assert table
    row = dict(zip(table.columns, cells(table, "poisson 2/s", "served / bare"), strict=True))
    assert row["rounds"] == "2"
    assert float(row["TTFT p50"]) == pytest.approx(1.2, rel=0.15)
    assert ratio_table(TOKENS, [one for one in results if one.side == "bare"]) is None


def test_a_round_without_an_answer_is_no_time_of_zero() -> None:
    """Rounds in which the first side answered nothing made it 0.000 times as slow as the other."""
    case, slow = LoadPlan().cases[0], run_of([answer(0.0, 0.4, [0.1])], 2.0)
    none = run_of([record(outcome="timeout")], 2.0)
    runs = {"served": [none, none, slow], "bare": [slow, slow, slow]}
    table = ratio_table(TOKENS, [Result(case, side, done, summarise(done)) for side, done in runs.items()])
    assert table
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["tokens/s"], row["TTFT p50"], row["latency p50"]) == ("0.000", "1.000", "1.000")


def test_what_was_refused_is_told(results: list[Result]) -> None:
    table = error_table(results)
    assert table
    outcome, _, side, error, count = table.rows[0]
    assert (outcome, error) == ("unavailable", "the queue is full")
    assert int(count) > 0


def test_doubts_name_a_late_client() -> None:
    case = LoadPlan("poisson", (1.0,)).cases[0]
    late = run_of([record(0, 0.0, 2.0, sent=0.5)], 2.0, cpu_share=0.95, stopped="interrupted")
    told = " ".join(doubts([Result(case, "served", [late], summarise(late))]))
    assert "500 ms after they were due" in told
    assert "95% of a core" in told
    assert "ended early (interrupted)" in told
    fine = replace(late, records=(record(),), cpu_share=0.1, stopped="")
    assert doubts([Result(case, "served", [fine], summarise(fine))]) == []


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": None, "b": [None, 1.5]}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--json .*none"):
        write_json(tmp_path / "none" / "out.json", {})


def test_a_full_disk_leaves_the_figures_of_before(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    write_json(file, {"before": 1})
    with (
        full_disk(),
        pytest.raises(SettingsError, match="--json .*out.json: .* written: File too large"),
    ):
        write_json(file, {"after": "x" * 4 * ROOM})
    assert json.loads(file.read_text()) == {"before": 1}


def test_a_run_shorter_than_an_answer_says_so() -> None:
    """It said that no request was answered."""
    slow = run_of([record(latency=9.0)], 3.0, began=1.0)
    (sentence,) = doubts([Result(LoadPlan().cases[0], "served", [slow], summarise(slow))])
    assert sentence.endswith(
        "no request began in the time that counts: --seconds gives more, or --warmup less."
    )


@pytest.mark.parametrize(("takes", "told"), [(1.0, False), (9.0, True)])
def test_a_load_that_is_not_answered_as_it_comes_is_told(takes: float, told: bool) -> None:
    """Its times are as long as the run was: no SLO can be judged by them."""
    records = [record(number, number / 2, takes + (number / 2 if told else 0.0)) for number in range(40)]
    run = run_of(records, 18.0, began=2.0)
    found = doubts([Result(LoadPlan("poisson", (2.0,)).cases[0], "served", [run], summarise(run))])
    assert any("more came than were answered" in sentence for sentence in found) == told


def test_a_closed_loop_that_is_slow_is_no_load_that_grows() -> None:
    run = run_of([record(number, 9.0 * (number // 8) + 0.01, 9.0) for number in range(24)], 25.0)
    assert doubts([Result(LoadPlan(sizes=(8,)).cases[0], "served", [run], summarise(run))]) == []


def test_a_side_that_finds_the_prompts_of_the_first_in_its_cache_is_told() -> None:
    """Both were ways to one server, and the second was the faster one."""
    case = LoadPlan().cases[0]
    runs = {
        name: run_of([answer(0.0, 0.1, input_tokens=100, cached_tokens=cached)], 9.0)
        for name, cached in (("served", 2), ("beside", 90))
    }
    (sentence,) = doubts([Result(case, name, [run], summarise(run)) for name, run in runs.items()])
    assert sentence.startswith(
        "1 client, beside: 90% of its prompt tokens came from its prefix cache, and 2.0%"
    )
