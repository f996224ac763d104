"""Prints findings: for people, and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trimodal.check.findings import Finding
from trimodal.report.findings import STYLES, counted


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
    counts = ", ".join(counted(findings)) or "nothing found"
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
    return json.dumps({"profiles": list(profiles), "findings": rows}, indent=2, ensure_ascii=False)
