"""Prints findings: for people, as JSON, as SARIF 2.1.0 for code review tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from trimodal.check.findings import Finding
from trimodal.check.rules import RULES
from trimodal.report import findings as report
from trimodal.report.findings import STYLES, Severity, counted

_NAMES: dict[Severity, str] = {"error": "error", "warning": "warning", "note": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def shown_path(file: Path) -> str:
    """Relative to the working directory, where it lies below it."""
    path = os.path.relpath(file)
    return str(file) if path.startswith("..") else path


def print_findings(
    findings: Sequence[Finding], models: int, profiles: Sequence[str], console: Console
) -> None:
    """A line each, as `file:line:column: error TRI030 sentence`, the fix below it, and a line that counts."""
    for finding in findings:
        place = finding.place
        line = Text(f"{shown_path(place.file)}:{place.line}:{place.column}: ", style="bold")
        line.append(finding.severity, style=STYLES[finding.severity])
        line.append(f" {finding.rule} {finding.sentence}", style="not bold")
        console.print(line, soft_wrap=True)
        console.print(Text(f"    fix: {finding.remedy}", style="dim"), soft_wrap=True)
    counts = ", ".join(counted(findings, _NAMES)) or "nothing found"
    looked = f"{models} model{'s' if models != 1 else ''}"
    named = f"profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}"
    console.print(f"{counts} in {looked}, {named}", soft_wrap=True)


def as_json(findings: Sequence[Finding], profiles: Sequence[str]) -> str:
    """`{"profiles", "findings"}`: of each rule, severity, model, file, line, column, sentence, fix."""
    rows = [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "model": finding.place.model,
            "file": shown_path(finding.place.file),
            "line": finding.place.line,
            "column": finding.place.column,
            "sentence": finding.sentence,
            "fix": finding.remedy,
        }
        for finding in findings
    ]
    return report.as_json({"profiles": list(profiles), "findings": rows})


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
    return report.as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(finding: Finding, order: Sequence[str]) -> dict[str, Any]:
    path = PurePath(shown_path(finding.place.file)).as_posix()
    uri = f"file://{quote(path)}" if path.startswith("/") else quote(path)
    region = {"startLine": finding.place.line, "startColumn": finding.place.column}
    return {
        "ruleId": finding.rule,
        "ruleIndex": order.index(finding.rule),
        "level": finding.severity,
        "message": {"text": f"{finding.sentence}. Fix: {finding.remedy}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }


def _version() -> str:
    try:
        return version("trimodal")
    except PackageNotFoundError:
        return "0"
