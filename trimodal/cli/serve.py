"""`trimodal serve`: starts Triton with a repository and serves until Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trimodal import logs
from trimodal.cli.common import (
    OPERATOR_KEY,
    VARIABLE,
    Config,
    OperatorKeyFile,
    one_sentence,
    read_key,
    with_settings,
)
from trimodal.cli.gateway import AccessSettings, check_installed, server_of, settings_of, whom
from trimodal.errors import OperatorError
from trimodal.logs import FORMAT_VARIABLE, LEVEL_VARIABLE

if TYPE_CHECKING:
    from trimodal.gateway.server import GatewayServer
    from trimodal.server.foreground import Signals
    from trimodal.server.options import ServerOptions
    from trimodal.server.process import TritonServer

served = partial(typer.Option, envvar=VARIABLE, rich_help_panel="What is served")
addresses = partial(
    typer.Option, envvar=VARIABLE, rich_help_panel="Addresses and ports; port 0 picks a free one"
)
life = partial(typer.Option, envvar=VARIABLE, rich_help_panel="Start and end")
records = partial(typer.Option, envvar=VARIABLE, rich_help_panel="Log and traces")


@dataclass(frozen=True)
class RepositorySettings:
    """Options of every command that looks at a repository as a server would: here, in `doctor` and `tune`."""

    profile: Annotated[str, served(help="cpu, cuda or tensorrt")] = "cpu"
    model_repository: Annotated[Path | None, served(help="default: ./model_repository")] = None
    engines: Annotated[
        Path | None,
        served(help="directory with built engines, beside the repository's"),
    ] = None
    set_: Annotated[
        list[str] | None,
        served("--set", metavar="MODEL.PARAMETER=VALUE", help="change a parameter; repeatable"),
    ] = None

    def options(self, **others: Any) -> ServerOptions:
        """As the server takes them. Raises: typer.BadParameter (the profile) or ServerError (--set)."""
        from trimodal.paths import default_engines, default_repository
        from trimodal.server.options import ServerOptions, parse_profile
        from trimodal.server.overlay import parse_changes

        try:
            profile = parse_profile(self.profile)
        except OperatorError as error:
            raise typer.BadParameter(str(error), param_hint="--profile") from None
        known = {field.name for field in fields(ServerOptions)}
        given = {name: value for name, value in vars(self).items() if name in known} | others
        return ServerOptions(
            **given
            | {
                "repository": self.model_repository or default_repository(),
                "profile": profile,
                "engines": self.engines or (None if self.model_repository else default_engines()),
                "changes": parse_changes(self.set_ or ()),
            }
        )


@dataclass(frozen=True)
class ListenSettings(RepositorySettings):
    """… and which models of it are to listen where."""

    model: Annotated[list[str] | None, served(help="this model only; repeatable")] = None
    host: Annotated[str, addresses(help="address to listen on")] = "127.0.0.1"
    http_port: Annotated[int, addresses()] = 8000
    grpc_port: Annotated[int, addresses()] = 8001
    metrics_port: Annotated[int, addresses()] = 8002
    health_port: Annotated[int, addresses(help="of the page for probes")] = 8003

    def options(self, **others: Any) -> ServerOptions:
        return super().options(models=tuple(self.model or ()), **others)


@dataclass(frozen=True)
class ServeCommand(AccessSettings, ListenSettings):
    """All options of `trimodal serve`."""

    health_host: Annotated[str, addresses(help="address of that page; default: --host")] = ""
    gateway: Annotated[bool, served("--gateway", help="OpenAI's API in front of it")] = False
    gateway_host: Annotated[str, addresses(help="of the gateway")] = "127.0.0.1"
    gateway_port: Annotated[int, addresses()] = 8080
    drain_timeout: Annotated[float, life(min=0, max=86_400, help="seconds for running requests")] = 30.0
    ready_timeout: Annotated[
        float, life(min=1, help="seconds until all must be loaded and its files read")
    ] = 300.0
    hang_timeout: Annotated[
        float,
        life(
            min=0,
            help="seconds until what runs and answers nothing is ended; 0: never",
        ),
    ] = 10.0
    otlp: Annotated[
        str,
        records(
            help="send traces to this OpenTelemetry collector, as http://collector:4318",
        ),
    ] = ""
    otlp_every: Annotated[
        int,
        records(
            min=0,
            help="trace one request in so many; 0: only those with a traceparent",
        ),
    ] = 1
    log: Annotated[
        Path | None,
        records(
            help="file for Triton's log, appended to; default: in the cache directory",
        ),
    ] = None
    log_format: Annotated[Literal["text", "json"], records(help="our records in that log")] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        records(help="of our records: from here on"),
    ] = "info"
    operator_key_file: OperatorKeyFile = None
    restart: Annotated[
        bool,
        life(
            "--restart",
            help="start tritonserver again if it ends by itself: at once, then after 1, 2, 4 … 30 s",
        ),
    ] = False
    verbose: Annotated[
        bool,
        records("--verbose", "-v", help="stream Triton's log to stderr"),
    ] = False


@with_settings(ServeCommand)
def serve(settings: ServeCommand, config: Config = None) -> None:
    """Starts Triton with this repository and serves until Ctrl-C or SIGTERM, then drains.

    --gateway starts `trimodal gateway` with it, which has more options where it runs by itself.
    """
    from trimodal.server.foreground import Signals, serving, wait_for_signal
    from trimodal.server.process import Interrupted

    signals = Signals()
    # Every process of the server inherits these.
    os.environ.update({FORMAT_VARIABLE: settings.log_format, LEVEL_VARIABLE: settings.log_level})
    logs.configure()
    logs.outlive_output()
    with one_sentence("trimodal serve"), ExitStack() as stack:
        warn_of_open_ports(settings.host)
        stack.callback(signals.ignore)
        options = settings.options(operator_key=read_key(settings.operator_key_file, OPERATOR_KEY) or None)
        built_in = None
        if settings.gateway:
            built_in = BuiltInGateway(settings)
            stack.callback(built_in.close)
        meanwhile = built_in.prepare if built_in else None
        try:
            server = stack.enter_context(
                serving(options, signals, verbose=settings.verbose, meanwhile=meanwhile)
            )
        except Interrupted:
            typer.echo("Stopped while loading.", err=True)
            return
        if built_in:
            typer.echo(stack.enter_context(built_in.serving(signals)))
        typer.echo("Ready. Press Ctrl-C to stop.")
        wait_for_signal(server, signals, verbose=settings.verbose, restart=settings.restart)


def warn_of_open_ports(host: str) -> None:
    """Says it where other machines can connect to Triton's own ports."""
    from trimodal.gateway.settings import is_loopback

    if not is_loopback(host):
        typer.echo(
            f"Triton's ports on {host} ask for no key and bound no body: "
            "let only the gateway or deploy/haproxy reach them (docs/security.md).",
            err=True,
        )


class BuiltInGateway:
    """The gateway of `trimodal serve --gateway`: all but its import comes before the models load.

    Raises: OperatorError.
    """

    def __init__(self, settings: ServeCommand) -> None:
        check_installed()
        self._settings = settings_of(
            host=settings.gateway_host,
            port=settings.gateway_port,
            drain_timeout_s=settings.drain_timeout,
            **settings.access_settings(),
        )
        from trimodal.gateway.keys import read_keys
        from trimodal.server.ports import listen

        if self._settings.keys:
            read_keys(self._settings.keys)
        self._port = listen(self._settings.host, self._settings.port, "--gateway-port")
        self._gateway: GatewayServer | None = None

    def prepare(self, server: TritonServer) -> None:
        """Imports and makes the gateway of a server that is loading."""
        upstream = {"upstream": (server.url,), "operator_key": server.operator_key}
        self._gateway = server_of(self._settings.model_copy(update=upstream))

    @contextmanager
    def serving(self, signals: Signals) -> Iterator[str]:
        """Serves while the block lasts, and drains at its end; a line that says where."""
        assert self._gateway
        url = self._gateway.listen(self._port)
        with self._gateway.serving(signals.twice):
            yield f"OpenAI  {url}/v1, for {whom(self._settings)}\npage    {url}/"

    def close(self) -> None:
        self._port.close()
