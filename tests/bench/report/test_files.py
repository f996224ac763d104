from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.bench.load.records import answer, record, run_of
from trimodal.bench.load.slo import parse_slo
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report.files import write_csv, write_json, write_jsonl
from trimodal.errors import SettingsError


def test_csv_has_a_line_for_each_case_and_all_columns(tmp_path: Path) -> None:
    answers = [answer(float(n), 0.1, [0.05]) for n in range(9)]
    first = summarise(run_of(answers, 9.0), parse_slo("ttft_ms<=500"), cost_per_hour=2.0)
    second = summarise(run_of([record()], 1.0), more={"kv_usage": 0.5})
    write_csv(tmp_path / "out.csv", [({"case": "1 stream"}, first), ({"case": "8, streams"}, second)])
    one, other = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert (one["case"], other["case"]) == ("1 stream", "8, streams")
    assert float(one["ttft_ms_p50"]) == pytest.approx(100.0)
    assert one["slo_ttft_ms<=500"] == "True"
    assert other["ttft_ms_p50"] == ""
    assert other["kv_usage"] == "0.5"
    assert float(one["cost_per_1000_requests"]) > 0


def test_jsonl_has_a_line_for_each_request(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "out.jsonl", [({"case": "a"}, [answer(0.0, 0.1, [0.2]), record(1)])])
    one, other = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert one["pieces"] == pytest.approx([0.1, 0.3])
    assert (other["case"], other["number"], other["outcome"]) == ("a", 1, "ok")


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": None, "b": [None, 1.5]}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--csv .*none"):
        write_csv(tmp_path / "none" / "out.csv", [])
