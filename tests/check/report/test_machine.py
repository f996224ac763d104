from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from trimodal.check.findings import Finding
from trimodal.check.report.machine import as_json, as_sarif
from trimodal.check.rules import RULES
from trimodal.check.source import Place

LEVELS = ["none", "note", "warning", "error"]
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
# What SARIF 2.1.0 demands of the parts that are used here.
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "additionalProperties": False,
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {
                                                "shortDescription": TEXT,
                                                "help": TEXT,
                                                "defaultConfiguration": {
                                                    "properties": {"level": {"enum": LEVELS}}
                                                },
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "level"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": LEVELS},
                                "message": TEXT,
                                "locations": {
                                    "items": {
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation", "region"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "properties": {"uri": {"pattern": r"^[^\s\\]+$"}}
                                                    },
                                                    "region": {
                                                        "properties": {
                                                            "startLine": {"type": "integer", "minimum": 1},
                                                            "startColumn": {"type": "integer", "minimum": 1},
                                                        }
                                                    },
                                                },
                                            }
                                        },
                                    }
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.chdir(tmp_path)
    here, elsewhere = tmp_path / "my repository" / "m" / "config.pbtxt", Path("/elsewhere/config.pbtxt")
    return [
        Finding(RULES["TRI030"], here, Place(3, 5), "a preferred batch size is 16", "lower it", "m"),
        Finding(RULES["TRI042"], elsewhere, Place(), "it is 1 s", "set it", "n"),
    ]


def test_sarif_keeps_its_form(findings: list[Finding]) -> None:
    report = json.loads(as_sarif(findings))
    jsonschema.validate(report, SARIF)
    (run,) = report["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    first, second = run["results"]
    assert rules[first["ruleIndex"]]["id"] == first["ruleId"] == "TRI030"
    assert (first["level"], second["level"]) == ("error", "note")
    place = first["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "my%20repository/m/config.pbtxt"},
        "region": {"startLine": 3, "startColumn": 5},
    }
    uri = second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///elsewhere/config.pbtxt"
    jsonschema.validate(json.loads(as_sarif([])), SARIF)


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
