"""Defines what `trimodal check` and `trimodal doctor` find, and what printing it shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

# error: it is refused, or breaks when it is used · warning: it may hurt · note: worth a look
Severity = Literal["error", "warning", "note", "ok"]
BAD: tuple[Severity, ...] = ("error", "warning", "note")
STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}
Place = TypeVar("Place")


@dataclass(frozen=True)
class Finding(Generic[Place]):
    """What was found at a place, and what to do about it. `rule`: its id, where a rule says so."""

    severity: Severity
    place: Place
    sentence: str
    remedy: str = ""
    rule: str = ""


def counted(findings: Sequence[Finding[Any]]) -> list[str]:
    """`["2 errors", "1 warning"]`, what is worst first."""
    counts = Counter(finding.severity for finding in findings)
    return [f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}" for kind in BAD if counts[kind]]
