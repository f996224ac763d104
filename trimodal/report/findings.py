"""Defines what `trimodal check` and `trimodal doctor` find, and what printing it shares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

# error: it is refused, or breaks when it is used · warning: it may hurt · note: worth a look
Severity = Literal["error", "warning", "note", "ok"]
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


def counted(findings: Sequence[Finding[Any]], names: Mapping[Severity, str]) -> list[str]:
    """`["2 errors", "1 warning"]`, in the order of `names`, which says what each severity is called."""
    found = [sum(finding.severity == severity for finding in findings) for severity in names]
    pairs = zip(found, names.values(), strict=True)
    return [f"{count} {name}{'s' if count > 1 else ''}" for count, name in pairs if count]


def as_json(report: Mapping[str, Any]) -> str:
    return json.dumps(report, indent=2, ensure_ascii=False)
