"""Defines the checker's rules, and what it finds: a rule that is broken at a place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimodal.check.source import SourcePosition
from trimodal.report import findings
from trimodal.report.findings import Severity


@dataclass(frozen=True)
class Rule:
    """`title`: what is wrong, in a few words. `refused`: the server does not load such a model."""

    id: str
    severity: Severity
    title: str
    fix: str
    refused: bool = False

    def finding(
        self, file: Path, position: SourcePosition, sentence: str, *, model: str = "", fix: str = ""
    ) -> Finding:
        """The rule broken at a place; `fix` where the rule's own is too general."""
        place = FilePosition(file, position.line, position.column, model)
        return Finding(self.severity, place, sentence, fix or self.fix, self.id)


@dataclass(frozen=True)
class FilePosition:
    """Where something stands: lines and columns count from 1. `model`: whose file it is."""

    file: Path
    line: int = 1
    column: int = 1
    model: str = ""


Finding = findings.Finding[FilePosition]


@dataclass(frozen=True)
class Target:
    """What the repository is to run on; None and 0: not known, and what needs it is not looked at."""

    release: tuple[int, int]  # of the container, as (24, 10)
    slo_ms: float = 0
    cores: int = 0
    gpu_memory: int = 0  # bytes, of one GPU
    deployment: tuple[Path, ...] = ()  # files with the server's command line
