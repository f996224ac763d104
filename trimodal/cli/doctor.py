"""`trimodal doctor`: says what is missing on this machine for serving a profile."""

from __future__ import annotations

from contextlib import nullcontext

import typer

from trimodal.cli.common import one_sentence, with_settings
from trimodal.cli.gateway import CorsOrigins, Keys
from trimodal.cli.gateway import Host as GatewayHost
from trimodal.cli.serve import ListenSettings


@with_settings(ListenSettings)
def doctor(
    settings: ListenSettings,
    deep: bool = typer.Option(False, "--deep", help="also read every built file and compare hashes"),
    production: bool = typer.Option(
        False,
        "--production",
        help="also what strangers would find; with the gateway's options",
    ),
    gateway_host: GatewayHost = "127.0.0.1",
    keys: Keys = None,
    cors_origins: CorsOrigins = None,
) -> None:
    """Say what is missing on this machine for serving a profile (exit code 1)."""
    from rich.console import Console

    from trimodal.doctor.examine import examine
    from trimodal.doctor.report import passed, print_checks

    with one_sentence("trimodal doctor"):
        options = settings.options()
    given = {"host": gateway_host, "keys": keys, "cors_origins": cors_origins}
    gateway = {name: value for name, value in given.items() if value} if production else None
    err = Console(stderr=True)
    with err.status("reading built files") if deep and err.is_terminal else nullcontext():
        checks = examine(options, deep=deep, gateway=gateway)
    print_checks(checks, options, Console(highlight=False, markup=False))
    raise typer.Exit(0 if passed(checks) else 1)
