"""What is found, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimodal.check.printing import as_json
from trimodal.check.rules import RULES
from trimodal.check.source import SourcePosition


def test_json_names_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, said = tmp_path / "my repository" / "m" / "config.pbtxt", "a preferred batch size is 16"
    finding = RULES["TRI030"].finding(file, SourcePosition(3, 5), said, model="m", fix="lower it")
    report = json.loads(as_json([finding], ["cpu", "default"]))
    assert report["profiles"] == ["cpu", "default"]
    assert report["findings"][0] == {
        "rule": "TRI030",
        "severity": "error",
        "model": "m",
        "file": "my repository/m/config.pbtxt",
        "line": 3,
        "column": 5,
        "sentence": said,
        "fix": "lower it",
    }
