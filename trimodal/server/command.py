"""`trimodal serve`: its options and exit codes. What it does is in trimodal.server.foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimodal.errors import OperatorError


def serve(
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
        list[str] | None,
        typer.Option(envvar="TRIMODAL_MODEL", help="serve only this model; repeatable"),
    ] = None,
    host: Annotated[str, typer.Option(envvar="TRIMODAL_HOST", help="address to listen on")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(envvar="TRIMODAL_HTTP_PORT", help="0 picks a free one")] = 8000,
    grpc_port: Annotated[int, typer.Option(envvar="TRIMODAL_GRPC_PORT", help="0 picks a free one")] = 8001,
    metrics_port: Annotated[
        int, typer.Option(envvar="TRIMODAL_METRICS_PORT", help="0 picks a free one")
    ] = 8002,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="MODEL.PARAMETER=VALUE", help="change a parameter; repeatable"),
    ] = None,
    drain_timeout: Annotated[
        float, typer.Option(envvar="TRIMODAL_DRAIN_TIMEOUT", min=0, help="seconds for running requests")
    ] = 30.0,
    ready_timeout: Annotated[
        float, typer.Option(envvar="TRIMODAL_READY_TIMEOUT", min=1, help="seconds until all must be ready")
    ] = 300.0,
    operator_key: Annotated[
        str | None,
        typer.Option(envvar="TRIMODAL_OPERATOR_KEY", help="opens the repository API; default: a random one"),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(envvar="TRIMODAL_LOG", help="file for Triton's log; default: in the cache directory"),
    ] = None,
    log_verbose: Annotated[
        int, typer.Option(envvar="TRIMODAL_LOG_VERBOSE", min=0, help="Triton's own --log-verbose")
    ] = 0,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", envvar="TRIMODAL_VERBOSE", help="stream Triton's log to stderr"),
    ] = False,
) -> None:
    """Starts Triton with this repository and serves until Ctrl-C or SIGTERM, then drains."""
    from trimodal.server.foreground import Signals, run
    from trimodal.server.options import ServerOptions, default_repository, parse_profile
    from trimodal.server.overlay import parse_changes

    signals = Signals()
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
            drain_timeout=drain_timeout,
            ready_timeout=ready_timeout,
            log=log,
            log_verbose=log_verbose,
            operator_key=operator_key,
            changes=parse_changes(set_ or ()),
        )
        code = run(options, signals, verbose=verbose)
    except OperatorError as error:
        typer.echo(f"trimodal serve: {error}", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(code)
