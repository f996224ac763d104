"""Runs a build script by its command line."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import typer
from typer.testing import CliRunner, Result

Build = Callable[..., Result]


def command(script: str) -> Build:
    """The script as a function of its command line."""
    app = typer.Typer()
    app.command()(importlib.import_module(script).main)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result: Result) -> str:
    """The one red sentence of a failed build, after it is known to be no traceback."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line.startswith("error: ")]
    return line
