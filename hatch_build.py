"""Puts what a wheel needs to work by itself into `trimodal/_data`: repository, build scripts, samples.

Built engines are never taken: they are built where they serve, by `trimodal build` (or `trimodal demo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = "trimodal/_data"
CHECKOUT = "judge/wheel"  # folder of build/ that only a checkout needs


class DataHook(BuildHookInterface[Any]):
    """Adds the data to wheels, not to editable installs: these see the source tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        for file in data_files(root):
            build_data["force_include"][str(file)] = f"{DATA}/{file.relative_to(root)}"


def data_files(root: Path) -> Iterator[Path]:
    """Configs and glue of the repository, build scripts, the list of the starter set, samples.

    The judge is a wheel of its own, and what it learned from stays in the checkout.
    """
    repository = root / "model_repository"
    for file in files_in(repository):
        _, *inside = file.relative_to(repository).parts
        if not (len(inside) > 2 and inside[0].isdecimal()):
            yield file
    build = root / "build"
    for file in files_in(build):
        if file.suffix == ".py" and not file.is_relative_to(build / CHECKOUT):
            yield file
    yield build / "steps" / "vision" / "imagenet.txt"
    yield build / "starter.toml"
    yield from files_in(root / "samples")


def files_in(folder: Path) -> Iterator[Path]:
    """All files, but no byte code and nothing hidden except .gitkeep."""
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        hidden = any(part.startswith(".") and part != ".gitkeep" for part in parts)
        if file.is_file() and not hidden and "__pycache__" not in parts:
            yield file
