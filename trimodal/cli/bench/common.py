"""Runs one bench command: its figures are printed and written, an error is one line and exit code 1."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from rich.console import Console


def pair(text: str) -> tuple[str, str]:
    """`parameter=value` as two texts. Raises: typer.BadParameter."""
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set {text}: parameter=value is needed")
    return key, value


def check_peer(name: str) -> None:
    """Raises: typer.BadParameter: there is no such peer."""
    if name not in ("", "fastapi"):
        raise typer.BadParameter(f"--peer {name}: known is fastapi")


def check_writable(option: str, path: Path) -> None:
    """Raises: typer.BadParameter now: an hour of figures must not end in it."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{option} {path}: no file can be written there")


def run(
    measuring: Callable[[Console], Coroutine[Any, Any, dict[str, Any]]], json_: Path | None
) -> dict[str, Any]:
    """The figures, printed and, where wanted, written; an error is one line and exit code 1."""
    import asyncio
    import json

    from rich.console import Console

    if json_:
        check_writable("--json", json_)
    with one_sentence("bench"):
        figures = asyncio.run(measuring(Console(highlight=False)))
    if json_:
        json_.write_text(json.dumps(figures, indent=2, default=str) + "\n")
    return figures
