"""Findings as JSON, and as SARIF 2.1.0, which code review tools show beside the lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from trimodal.check.findings import Finding
from trimodal.check.latency import Item
from trimodal.check.report.text import shown_path
from trimodal.check.rules import RULES

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(findings: Sequence[Finding], profiles: Sequence[str]) -> str:
    """`{"profiles", "findings"}`: of each rule, severity, model, file, line, column, sentence, fix."""
    rows = [
        {
            "rule": finding.rule.id,
            "severity": finding.rule.severity,
            "model": finding.model,
            "file": shown_path(finding.file),
            "line": finding.place.line,
            "column": finding.place.column,
            "sentence": finding.sentence,
            "fix": finding.fix,
        }
        for finding in findings
    ]
    return json.dumps({"profiles": list(profiles), "findings": rows}, indent=2, ensure_ascii=False)


def checklist_as_json(items: Sequence[Item], profile: str) -> str:
    """`{"profile", "latency": [{"name", "state", "evidence"}]}`."""
    rows = [{"name": item.name, "state": item.state, "evidence": list(item.evidence)} for item in items]
    return json.dumps({"profile": profile, "latency": rows}, indent=2, ensure_ascii=False)


def as_sarif(findings: Sequence[Finding]) -> str:
    """One run of one tool, all rules described, a result for each finding."""
    order = list(RULES)
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.title},
            "help": {"text": rule.fix},
            "defaultConfiguration": {"level": rule.severity},
        }
        for rule in RULES.values()
    ]
    run = {
        "tool": {"driver": {"name": "trimodal check", "version": _version(), "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, order) for finding in findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _result(finding: Finding, order: Sequence[str]) -> dict[str, Any]:
    path = PurePath(shown_path(finding.file)).as_posix()
    uri = f"file://{quote(path)}" if path.startswith("/") else quote(path)
    region = {"startLine": finding.place.line, "startColumn": finding.place.column}
    return {
        "ruleId": finding.rule.id,
        "ruleIndex": order.index(finding.rule.id),
        "level": finding.rule.severity,
        "message": {"text": f"{finding.sentence}. Fix: {finding.fix}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }


def _version() -> str:
    try:
        return version("trimodal")
    except PackageNotFoundError:
        return "0"
