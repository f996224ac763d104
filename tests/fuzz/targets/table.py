"""Names the targets, and reads the inputs that are kept for each."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path
from types import ModuleType

NAMES = ("pictures", "audio", "forms", "tensors", "files", "answers", "bodies", "events")
CORPUS = Path(__file__).parents[1] / "corpus"


def target(name: str) -> ModuleType:
    """The module of a target: `run(data)`."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def seeds(name: str) -> list[bytes]:
    """The committed corpus of a target, an input in base64 a line."""
    return [base64.b64decode(line) for line in (CORPUS / f"{name}.txt").read_text().splitlines()]
