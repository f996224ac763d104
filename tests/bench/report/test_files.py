from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.load.records import answer, record
from trimodal.bench.report.files import write_json, write_jsonl
from trimodal.errors import SettingsError


def test_jsonl_has_a_line_for_each_request(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "out.jsonl", [({"case": "a"}, [answer(0.0, 0.1, [0.2]), record(1)])])
    one, other = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert one["pieces"] == pytest.approx([0.1, 0.3])
    assert (other["case"], other["number"], other["outcome"]) == ("a", 1, "ok")


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": None, "b": [None, 1.5]}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--json .*none"):
        write_json(tmp_path / "none" / "out.json", {})
