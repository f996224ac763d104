"""The unit of systemd: its settings are those of the command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer
from typer.main import get_command

from trimodal.cli.app import app

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "trimodal.service"


def values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def test_its_command_and_its_variables_are_known() -> None:
    (line,) = values("ExecStart")
    program, command, *arguments = shlex.split(line)
    assert program.endswith("/bin/trimodal")
    options = get_command(app).get_command(typer.Context(get_command(app)), command).params  # type: ignore[attr-defined]
    flags = {flag for option in options for flag in option.opts}
    assert {part for part in arguments if part.startswith("--")} <= flags
    variables = {str(option.envvar) for option in options if option.envvar} | {"TRIMODAL_CACHE"}
    (environment,) = values("Environment")
    assert {part.split("=")[0] for part in environment.split()} <= variables


def test_it_waits_for_the_drain() -> None:
    from trimodal.server.options import ServerOptions

    (stop,) = values("TimeoutStopSec")
    assert int(stop) > ServerOptions().drain_timeout
    assert values("KillMode") == ["mixed"], "the signal is for the launcher alone"
    assert values("Type") == ["notify"]
