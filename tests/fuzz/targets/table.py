"""Names the targets."""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = ("pictures", "audio", "forms", "tensors", "files", "answers", "bodies", "events")


def target(name: str) -> ModuleType:
    """The module of a target: `run(data)`, and MODULES, whose lines it is to reach."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")
