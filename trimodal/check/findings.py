"""What the checker says: a rule, and one finding of it at a place in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trimodal.check.source import Place

# error: the server refuses it, or it breaks when it is used · warning: it may hurt · note: worth a look
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Rule:
    """`title`: what is wrong, in a few words. `refused`: the server does not load such a model."""

    id: str
    severity: Severity
    title: str
    fix: str
    refused: bool = False


@dataclass(frozen=True)
class Finding:
    rule: Rule
    file: Path
    place: Place
    sentence: str
    fix: str
    model: str = ""

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        return str(self.file), self.place.line, self.place.column, self.rule.id, self.sentence


@dataclass(frozen=True)
class Target:
    """What the repository is to run on; None and 0: not known, and what needs it is not looked at."""

    release: tuple[int, int]  # of the container, as (24, 10)
    slo_ms: float = 0
    cores: int = 0
    gpu_memory: int = 0  # bytes, of one GPU
    deployment: tuple[Path, ...] = field(default=())  # files with the server's command line
