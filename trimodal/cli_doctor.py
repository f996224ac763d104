"""`trimodal doctor`: its options and exit codes. What is looked at is in trimodal.doctor."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from trimodal.errors import OperatorError


def doctor(
    profile: Annotated[str, typer.Option(envvar="TRIMODAL_PROFILE", help="cpu, cuda or gpu")] = "cpu",
    model_repository: Annotated[
        Path | None,
        typer.Option(envvar="TRIMODAL_MODEL_REPOSITORY", help="default: ./model_repository"),
    ] = None,
    engines: Annotated[
        Path | None,
        typer.Option(
            envvar="TRIMODAL_ENGINES", help="directory with built engines, beside those of the repository"
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(envvar="TRIMODAL_MODEL", help="look at this model only; repeatable")
    ] = None,
    host: Annotated[str, typer.Option(envvar="TRIMODAL_HOST")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(envvar="TRIMODAL_HTTP_PORT")] = 8000,
    grpc_port: Annotated[int, typer.Option(envvar="TRIMODAL_GRPC_PORT")] = 8001,
    metrics_port: Annotated[int, typer.Option(envvar="TRIMODAL_METRICS_PORT")] = 8002,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="MODEL.PARAMETER=VALUE", help="as for serve; repeatable"),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="also read every built file and compare hashes")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Says what is missing on this machine for serving a profile (exit code 1), and starts nothing."""
    from rich.console import Console

    from trimodal.doctor.examine import examine
    from trimodal.doctor.show import as_json, passed, print_checks
    from trimodal.server.options import ServerOptions, default_repository, parse_profile
    from trimodal.server.overlay import parse_changes

    try:
        chosen = parse_profile(profile)
    except OperatorError as error:
        raise typer.BadParameter(str(error), param_hint="--profile") from None
    try:
        options = ServerOptions(
            repository=model_repository or default_repository(),
            profile=chosen,
            engines=engines,
            models=tuple(model or ()),
            host=host,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            changes=parse_changes(set_ or ()),
        )
    except OperatorError as error:
        typer.echo(f"trimodal doctor: {error}", err=True)
        raise typer.Exit(1) from None
    err = Console(stderr=True)
    with err.status("reading built files") if deep and err.is_terminal else nullcontext():
        checks = examine(options, deep=deep)
    if json_:
        typer.echo(as_json(checks, options))
    else:
        print_checks(checks, options, Console(highlight=False, markup=False))
    raise typer.Exit(0 if passed(checks) else 1)
