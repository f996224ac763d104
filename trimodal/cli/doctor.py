"""`trimodal doctor`: says what is missing on this machine for serving a profile."""

from __future__ import annotations

from contextlib import nullcontext

import typer

from trimodal.cli.common import one_sentence
from trimodal.cli.serve import (
    Changes,
    Engines,
    GrpcPort,
    HealthPort,
    Host,
    HttpPort,
    MetricsPort,
    Models,
    ProfileName,
    Repository,
    server_options,
)


def doctor(
    profile: ProfileName = "cpu",
    model_repository: Repository = None,
    engines: Engines = None,
    model: Models = None,
    host: Host = "127.0.0.1",
    http_port: HttpPort = 8000,
    grpc_port: GrpcPort = 8001,
    metrics_port: MetricsPort = 8002,
    health_port: HealthPort = 8003,
    set_: Changes = None,
    deep: bool = typer.Option(False, "--deep", help="also read every built file and compare hashes"),
    json_: bool = typer.Option(False, "--json", help="print JSON"),
) -> None:
    """Say what is missing on this machine for serving a profile (exit code 1)."""
    given = dict(locals())
    del given["deep"], given["json_"]
    from rich.console import Console

    from trimodal.doctor.examine import examine
    from trimodal.doctor.report import as_json, passed, print_checks

    with one_sentence("trimodal doctor"):
        options = server_options(**given)
    err = Console(stderr=True)
    with err.status("reading built files") if deep and err.is_terminal else nullcontext():
        checks = examine(options, deep=deep)
    if json_:
        typer.echo(as_json(checks, options))
    else:
        print_checks(checks, options, Console(highlight=False, markup=False))
    raise typer.Exit(0 if passed(checks) else 1)
