from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from trimodal.check.findings import Finding
from trimodal.check.printing import as_json, as_sarif
from trimodal.check.rules import RULES
from trimodal.check.source import SourcePosition


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.chdir(tmp_path)
    here, elsewhere = tmp_path / "my repository" / "m" / "config.pbtxt", Path("/elsewhere/config.pbtxt")
    said = "a preferred batch size is 16"
    return [
        RULES["TRI030"].finding(here, SourcePosition(3, 5), said, model="m", fix="lower it"),
        RULES["TRI042"].finding(elsewhere, SourcePosition(), "it is 1 s", model="n", fix="set it"),
    ]


def result(rule: str, level: str, text: str, uri: str, line: int, column: int) -> dict[str, object]:
    """A result with what SARIF 2.1.0 demands of it."""
    region = {"startLine": line, "startColumn": column}
    return {
        "ruleId": rule,
        "ruleIndex": list(RULES).index(rule),
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }


def test_sarif_keeps_its_form(findings: list[Finding]) -> None:
    driver = {
        "name": "trimodal check",
        "version": version("trimodal"),
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.title},
                "help": {"text": rule.fix},
                "defaultConfiguration": {"level": rule.severity},
            }
            for rule in RULES.values()
        ],
    }
    told, far = "a preferred batch size is 16. Fix: lower it", "file:///elsewhere/config.pbtxt"
    for some, results in (
        (
            findings,
            [
                result("TRI030", "error", told, "my%20repository/m/config.pbtxt", 3, 5),
                result("TRI042", "note", "it is 1 s. Fix: set it", far, 1, 1),
            ],
        ),
        ([], []),
    ):
        run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        assert json.loads(as_sarif(some)) == {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [run],
        }


def test_json_names_every_part(findings: list[Finding]) -> None:
    report = json.loads(as_json(findings, ["cpu", "default"]))
    assert report["profiles"] == ["cpu", "default"]
    assert report["findings"][0] == {
        "rule": "TRI030",
        "severity": "error",
        "model": "m",
        "file": "my repository/m/config.pbtxt",
        "line": 3,
        "column": 5,
        "sentence": "a preferred batch size is 16",
        "fix": "lower it",
    }
