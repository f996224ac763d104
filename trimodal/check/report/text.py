"""Prints findings and the latency checklist for people."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trimodal.check.findings import Finding, Severity
from trimodal.check.latency import Item, State

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "cyan"}
MARKS: dict[State, tuple[str, str]] = {"done": ("✓", "green"), "missing": ("✗", "red"), "open": ("?", "cyan")}


def shown_path(file: Path) -> str:
    """Relative to the working directory, where it lies below it."""
    path = os.path.relpath(file)
    return str(file) if path.startswith("..") else path


def print_findings(
    findings: Sequence[Finding], models: int, profiles: Sequence[str], console: Console
) -> None:
    """A line each, as `file:line:column: error TRI030 sentence`, the fix below it, and a line that counts."""
    for finding in findings:
        place = f"{shown_path(finding.file)}:{finding.place.line}:{finding.place.column}: "
        line = Text(place, style="bold")
        line.append(finding.rule.severity, style=STYLES[finding.rule.severity])
        line.append(f" {finding.rule.id} {finding.sentence}", style="not bold")
        console.print(line, soft_wrap=True)
        console.print(Text(f"    fix: {finding.fix}", style="dim"), soft_wrap=True)
    counts = [
        f"{count} {severity}{'s' if count > 1 else ''}"
        for severity in STYLES
        if (count := sum(finding.rule.severity == severity for finding in findings))
    ]
    looked = f"{models} model{'s' if models != 1 else ''}, {_names(profiles)}"
    console.print(f"{', '.join(counts) or 'nothing found'} in {looked}", soft_wrap=True)


def _names(profiles: Sequence[str]) -> str:
    return f"profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}"


def print_checklist(items: Sequence[Item], profile: str, console: Console) -> None:
    """A mark and a name each, what was found below."""
    console.print(f"latency checklist, profile {profile}", style="bold")
    for item in items:
        mark, style = MARKS[item.state]
        console.print(Text.assemble((f"  {mark} ", style), item.name), soft_wrap=True)
        for evidence in item.evidence:
            console.print(Text(f"      {evidence}", style="dim"), soft_wrap=True)
