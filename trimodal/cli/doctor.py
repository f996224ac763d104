"""`trimodal doctor`: says what is missing on this machine for serving a profile."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import typer

from trimodal.cli.common import one_sentence, with_settings
from trimodal.cli.gateway import AccessSettings
from trimodal.cli.gateway import Host as GatewayHost
from trimodal.cli.gateway import Port as GatewayPort
from trimodal.cli.serve import ListenSettings


@dataclass(frozen=True)
class DoctorCommand(AccessSettings, ListenSettings):
    """Options of `trimodal serve`, and the address of its gateway."""

    gateway_host: GatewayHost = "127.0.0.1"
    gateway_port: GatewayPort = 8080


@with_settings(DoctorCommand)
def doctor(
    settings: DoctorCommand,
    deep: bool = typer.Option(False, "--deep", help="also read every built file and compare hashes"),
    production: bool = typer.Option(
        False,
        "--production",
        help="also what strangers would find; with the gateway's options",
    ),
) -> None:
    """Say what is missing on this machine for serving a profile (exit code 1)."""
    from rich.console import Console

    from trimodal.doctor.examine import examine
    from trimodal.doctor.report import passed, print_checks

    given = {"host": settings.gateway_host, **settings.access_settings()}
    gateway = {name: value for name, value in given.items() if value} if production else None
    address = (settings.gateway_host, settings.gateway_port)
    err = Console(stderr=True)
    status = err.status("reading built files") if deep and err.is_terminal else nullcontext()
    with one_sentence("trimodal doctor"), status:
        options = settings.options()
        checks = examine(options, deep=deep, gateway=gateway, gateway_address=address)
    print_checks(checks, options, Console(highlight=False, markup=False))
    raise typer.Exit(0 if passed(checks) else 1)
