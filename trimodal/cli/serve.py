"""`trimodal serve`: starts Triton with a repository and serves until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trimodal.cli.common import OPERATOR_KEY, OperatorKeyFile, one_sentence, read_key
from trimodal.cli.gateway import (
    CorsOrigins,
    GatewayHost,
    GatewayPort,
    Keys,
    WithoutKeys,
    server_of,
    settings_of,
    whom,
)
from trimodal.errors import OperatorError
from trimodal.logs import FORMAT_VARIABLE, LEVEL_VARIABLE

if TYPE_CHECKING:
    from trimodal.server.foreground import Signals
    from trimodal.server.options import ServerOptions
    from trimodal.server.process import TritonServer

# Options of every command that looks at a repository as a server would: here and in `trimodal doctor`.
ProfileName = Annotated[str, typer.Option(envvar="TRIMODAL_PROFILE", help="cpu, cuda or tensorrt")]
Repository = Annotated[
    Path | None, typer.Option(envvar="TRIMODAL_MODEL_REPOSITORY", help="default: ./model_repository")
]
Engines = Annotated[
    Path | None,
    typer.Option(
        envvar="TRIMODAL_ENGINES", help="directory with built engines, beside those of the repository"
    ),
]
Models = Annotated[
    list[str] | None, typer.Option(envvar="TRIMODAL_MODEL", help="this model only; repeatable")
]
Host = Annotated[str, typer.Option(envvar="TRIMODAL_HOST", help="address to listen on")]
HttpPort = Annotated[int, typer.Option(envvar="TRIMODAL_HTTP_PORT", help="0 picks a free one")]
GrpcPort = Annotated[int, typer.Option(envvar="TRIMODAL_GRPC_PORT", help="0 picks a free one")]
MetricsPort = Annotated[int, typer.Option(envvar="TRIMODAL_METRICS_PORT", help="0 picks a free one")]
HealthPort = Annotated[
    int, typer.Option(envvar="TRIMODAL_HEALTH_PORT", help="of the page for probes; 0 picks a free one")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="MODEL.PARAMETER=VALUE", help="change a parameter; repeatable"),
]


def server_options(
    *,
    profile: str,
    model_repository: Path | None,
    engines: Path | None,
    model: list[str] | None,
    set_: list[str] | None,
    **others: Any,
) -> ServerOptions:
    """What a command line says. Raises: typer.BadParameter (the profile) or ServerError (--set)."""
    from trimodal.paths import default_engines, default_repository
    from trimodal.server.options import ServerOptions, parse_profile
    from trimodal.server.overlay import parse_changes

    try:
        chosen = parse_profile(profile)
    except OperatorError as error:
        raise typer.BadParameter(str(error), param_hint="--profile") from None
    return ServerOptions(
        repository=model_repository or default_repository(),
        profile=chosen,
        engines=engines or (None if model_repository else default_engines()),
        models=tuple(model or ()),
        changes=parse_changes(set_ or ()),
        **others,
    )


def serve(
    profile: ProfileName = "cpu",
    model_repository: Repository = None,
    engines: Engines = None,
    model: Models = None,
    host: Host = "127.0.0.1",
    http_port: HttpPort = 8000,
    grpc_port: GrpcPort = 8001,
    metrics_port: MetricsPort = 8002,
    health_port: HealthPort = 8003,
    health_host: str = typer.Option(
        "", envvar="TRIMODAL_HEALTH_HOST", help="address of that page; default: --host"
    ),
    set_: Changes = None,
    drain_timeout: float = typer.Option(
        30.0, envvar="TRIMODAL_DRAIN_TIMEOUT", min=0, help="seconds for running requests"
    ),
    ready_timeout: float = typer.Option(
        300.0, envvar="TRIMODAL_READY_TIMEOUT", min=1, help="seconds until all must be ready"
    ),
    otlp: str = typer.Option(
        "",
        envvar="TRIMODAL_OTLP",
        help="send traces to this OpenTelemetry collector, as http://collector:4318",
    ),
    otlp_every: int = typer.Option(
        1,
        envvar="TRIMODAL_OTLP_EVERY",
        min=0,
        help="trace one request in so many; 0: only those with a traceparent",
    ),
    operator_key_file: OperatorKeyFile = None,
    log: Path | None = typer.Option(
        None,
        envvar="TRIMODAL_LOG",
        help="file for Triton's log, appended to; default: in the cache directory. "
        "Its format is TRIMODAL_LOG_FORMAT, text or json",
    ),
    log_verbose: int = typer.Option(
        0, envvar="TRIMODAL_LOG_VERBOSE", min=0, help="Triton's own --log-verbose"
    ),
    log_format: Literal["text", "json"] = typer.Option(
        "text", envvar=FORMAT_VARIABLE, help="our records in that log"
    ),
    log_level: Literal["debug", "info", "warning", "error"] = typer.Option(
        "info", envvar=LEVEL_VARIABLE, case_sensitive=False, help="our records from this level on"
    ),
    verbose: bool = typer.Option(
        False, "--verbose", "-v", envvar="TRIMODAL_VERBOSE", help="stream Triton's log to stderr"
    ),
    restart: bool = typer.Option(
        False,
        "--restart",
        envvar="TRIMODAL_RESTART",
        help="start tritonserver again if it ends by itself: at once, then after 1, 2, 4 … 30 s",
    ),
    gateway: bool = typer.Option(
        False, "--gateway", envvar="TRIMODAL_GATEWAY", help="OpenAI's API in front of it"
    ),
    gateway_host: GatewayHost = "127.0.0.1",
    gateway_port: GatewayPort = 8080,
    keys: Keys = None,
    without_keys: WithoutKeys = False,
    cors_origin: CorsOrigins = None,
) -> None:
    """Starts Triton with this repository and serves until Ctrl-C or SIGTERM, then drains.

    --gateway starts `trimodal gateway` with it, which has more options where it runs by itself.
    """
    from trimodal.server.foreground import Signals, serving, wait_for_signal
    from trimodal.server.process import Interrupted

    signals = Signals()
    with one_sentence("trimodal serve"), ExitStack() as stack:
        warn_of_open_ports(host)
        stack.callback(signals.ignore)
        options = server_options(
            profile=profile,
            model_repository=model_repository,
            engines=engines,
            model=model,
            set_=set_,
            host=host,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            health_port=health_port,
            health_host=health_host,
            drain_timeout=drain_timeout,
            ready_timeout=ready_timeout,
            operator_key=read_key(operator_key_file, OPERATOR_KEY) or None,
            otlp=otlp,
            otlp_every=otlp_every,
            log=log,
            log_verbose=log_verbose,
            log_format=log_format,
            log_level=log_level,
        )
        front = None
        if gateway:
            front = Front(
                host=gateway_host,
                port=gateway_port,
                keys=keys,
                without_keys=without_keys,
                cors_origins=tuple(cors_origin or ()),
                drain_timeout_s=drain_timeout,
            )
            stack.callback(front.close)
        try:
            server = stack.enter_context(serving(options, signals, verbose=verbose))
        except Interrupted:
            typer.echo("Stopped while loading.", err=True)
            return
        if front:
            typer.echo(stack.enter_context(front.serving(server, signals)))
        typer.echo("Ready. Press Ctrl-C to stop.")
        wait_for_signal(server, signals, verbose=verbose, restart=restart)


def warn_of_open_ports(host: str) -> None:
    """Says it where other machines can connect to Triton's own ports."""
    from trimodal.gateway.settings import is_loopback

    if not is_loopback(host):
        typer.echo(
            f"Triton's ports on {host} ask for no key and bound no body: "
            "let only the gateway or deploy/haproxy reach them (docs/security.md).",
            err=True,
        )


class Front:
    """The gateway of `trimodal serve --gateway`: its settings and port are checked before the models load.

    Raises: OperatorError.
    """

    def __init__(self, **settings: object) -> None:
        self._settings = settings_of(**settings)
        from trimodal.gateway.keys import read_keys
        from trimodal.gateway.server import open_port

        if self._settings.keys:
            read_keys(self._settings.keys)
        self._port = open_port(self._settings)

    @contextmanager
    def serving(self, server: TritonServer, signals: Signals) -> Iterator[str]:
        """Serves while the block lasts, and drains at its end; a line that says where."""
        gateway = server_of(self._settings.model_copy(update={"upstream": (server.url,)}))
        url = gateway.listen(self._port)
        with gateway.serving(signals.twice):
            yield f"OpenAI  {url}/v1, for {whom(self._settings)}\npage    {url}/"

    def close(self) -> None:
        self._port.close()
