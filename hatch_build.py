"""Puts what a wheel needs to work by itself into `trimodal/_data`: repository, build scripts, demo samples.

With TRIMODAL_WHEEL_ENGINES=DIR (scripts/wheel) also the built engines `DIR/<model>/<artefact>`, in the
version folder `<model>/1`. Other engines of the checkout are never taken: they may be of any size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = "trimodal/_data"
CHECKOUT = ("demo", "judge/wheel")  # folders of build/ that only a checkout needs
# Of build/demo: what the demo and the speech checks read. Checkpoints are for training and stay out.
DEMO = ("golden.jsonl", "llm/topics.json", "speech/samples/*", "speech/questions/*", "vision/samples/*")


class DataHook(BuildHookInterface[Any]):
    """Adds the data to wheels, not to editable installs: these see the source tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        for file in data_files(root):
            build_data["force_include"][str(file)] = f"{DATA}/{file.relative_to(root)}"
        if engines := os.environ.get("TRIMODAL_WHEEL_ENGINES"):
            for file in files_in(Path(engines)):
                model, *rest = file.relative_to(engines).parts
                place = "/".join([DATA, "model_repository", model, "1", *rest])
                build_data["force_include"][str(file)] = place


def data_files(root: Path) -> Iterator[Path]:
    """Configs and glue of the repository, build scripts, samples of the demo.

    The judge is a wheel of its own, and what it learned from stays in the checkout.
    """
    repository = root / "model_repository"
    for file in files_in(repository):
        _, *inside = file.relative_to(repository).parts
        if not (len(inside) > 2 and inside[0].isdecimal()):
            yield file
    build = root / "build"
    for file in files_in(build):
        if file.suffix == ".py" and not any(file.is_relative_to(build / one) for one in CHECKOUT):
            yield file
    for pattern in DEMO:
        yield from sorted((root / "build" / "demo").glob(pattern))


def files_in(folder: Path) -> Iterator[Path]:
    """All files, but no byte code and nothing hidden except .gitkeep."""
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        hidden = any(part.startswith(".") and part != ".gitkeep" for part in parts)
        if file.is_file() and not hidden and "__pycache__" not in parts:
            yield file
