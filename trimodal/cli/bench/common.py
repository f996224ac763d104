"""Runs one bench command: its figures are printed and written, an error is one line and exit code 1."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def pair(text: str) -> tuple[str, str]:
    """`parameter=value` as two texts. Raises: typer.BadParameter."""
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set {text}: parameter=value is needed")
    return key, value


def run(
    measuring: Callable[[Console], Coroutine[Any, Any, dict[str, Any]]], json_: Path | None
) -> dict[str, Any]:
    """The figures, printed and, where wanted, written; an error is one line and exit code 1."""
    import asyncio
    import json
    import os

    from rich.console import Console

    from trimodal.errors import TrimodalError

    if json_ and (json_.is_dir() or not os.access(json_.parent, os.W_OK)):
        raise typer.BadParameter(f"--json {json_}: no file can be written there")
    try:
        figures = asyncio.run(measuring(Console(highlight=False)))
    except TrimodalError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from None
    if json_:
        json_.write_text(json.dumps(figures, indent=2, default=str) + "\n")
    return figures
