"""`trimodal gateway`: OpenAI's HTTP API in front of a running server."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimodal import logs
from trimodal.cli.common import (
    OPERATOR_KEY,
    URL,
    VARIABLE,
    Config,
    OperatorKeyFile,
    one_sentence,
    read_key,
    with_settings,
)

if TYPE_CHECKING:
    from trimodal.gateway.server import GatewayServer
    from trimodal.gateway.settings import GatewaySettings

servers = partial(typer.Option, envvar=VARIABLE, rich_help_panel="Model servers")
access = partial(typer.Option, envvar=VARIABLE, rich_help_panel="Gateway")
limits = partial(typer.Option, envvar=VARIABLE, rich_help_panel="Limits, in seconds and bytes")

# What the extra `gateway` installs.
PACKAGES = ("fastapi", "httptools", "jsonschema", "python_multipart", "uvicorn", "uvloop", "websockets")

# Also of `trimodal doctor`.
Host = Annotated[str, access(envvar="TRIMODAL_GATEWAY_HOST", help="address of the gateway")]
Port = Annotated[int, access(envvar="TRIMODAL_GATEWAY_PORT", help="of the gateway; 0 picks a free one")]


@dataclass(frozen=True)
class AccessSettings:
    """Who is let in, and to what: options of `trimodal gateway`, of `serve --gateway` and of `doctor`."""

    keys: Annotated[Path | None, access(help="file that `trimodal keys add` makes")] = None
    without_keys: Annotated[
        bool, access("--without-keys", help="let everybody in, also beyond this machine")
    ] = False
    cors_origins: Annotated[
        list[str] | None,
        access("--cors-origin", help="web pages from here may call it, as https://example.com; repeatable"),
    ] = None
    allowed_hosts: Annotated[
        list[str] | None,
        access(
            "--allowed-host",
            help="name that it has, as api.example.com, where there are no keys; * for any; repeatable",
        ),
    ] = None
    log_requests: Annotated[
        float,
        access(
            min=0,
            max=1,
            help="share of the requests that get a line in the log; failures always do, unless it is 0",
        ),
    ] = 1.0
    model_aliases: Annotated[
        list[str] | None,
        access("--model-alias", help="another name of a model, as gpt-4o-mini=llm; repeatable"),
    ] = None
    routes: Annotated[
        Path | None, access(help="file that `trimodal route` makes: versions' shares of requests")
    ] = None

    def access_settings(self) -> dict[str, Any]:
        """These alone, named as in `GatewaySettings`."""
        return {field.name: getattr(self, field.name) for field in fields(AccessSettings)}


@dataclass(frozen=True)
class GatewayCommand(AccessSettings):
    """The options of `trimodal gateway`, named as in `GatewaySettings`; None: as there."""

    upstream: Annotated[
        list[str] | None,
        servers(
            envvar="TRIMODAL_URL",
            help="host:port[:health-port] of a server's gRPC endpoint; with its health page, requests in "
            f"a process that died end at once; repeatable; default: {URL}",
        ),
    ] = None
    upstreams: Annotated[
        Path | None,
        servers(help="file of such servers; it may be changed meanwhile"),
    ] = None
    host: Host = "127.0.0.1"
    port: Port = 8080
    operator_key_file: OperatorKeyFile = None
    responses: Annotated[
        str,
        access(
            help="where /v1/responses keeps talks: memory, a file that ends with .sqlite, or redis://…",
        ),
    ] = "memory"
    max_responses: Annotated[
        int, limits(min=1, max=1_000_000, help="that are kept, each of up to 1 MiB; in memory 64 MiB of them")
    ] = 10_000
    early_waste: Annotated[
        float,
        limits(
            min=0,
            max=1,
            help="share of its tokens that may be wasted by answering before a turn is over; 0: never",
        ),
    ] = 0.5
    max_body_bytes: Annotated[int, limits(help="of a request; larger ones are refused")] = 32 << 20
    body_timeout_s: Annotated[float, limits("--body-timeout", help="until a body must be there")] = 60.0
    header_timeout_s: Annotated[float, limits("--header-timeout", help="until headers must be there")] = 10.0
    max_connections: Annotated[
        int,
        limits(help="at once; then those are closed that wait longest; 0: as ulimit allows"),
    ] = 0
    silence_s: Annotated[float, limits("--silence", help="that a model may be silent")] = 60.0
    drain_timeout_s: Annotated[
        float, limits("--drain-timeout", min=0, help="for running requests at the end")
    ] = 30.0


gateway = typer.Typer(help="OpenAI's HTTP API in front of Triton.", invoke_without_command=True)


@gateway.callback()
@with_settings(GatewayCommand)
def serve(context: typer.Context, settings: GatewayCommand, config: Config = None) -> None:
    """Serves OpenAI's HTTP API in front of Triton until Ctrl-C or SIGTERM, then drains."""
    if context.invoked_subcommand:
        return
    logs.outlive_output()
    with one_sentence("trimodal gateway"):
        values = asdict(settings)
        key = read_key(values.pop("operator_key_file"), OPERATOR_KEY)
        checked = settings_of(**values, operator_key=key or None)
        server = server_of(checked)
        url = server.listen()
        where = checked.upstreams or ", ".join(checked.upstream)
        typer.echo(f"OpenAI API  {url}/v1\nfor         {whom(checked)}\nmodels at   {where}")
        typer.echo("Press Ctrl-C to stop.")
        server.run()
        typer.echo("Stopped.", err=True)


Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="of the server, as in the file")]
File = Annotated[Path, typer.Option("--upstreams", envvar="TRIMODAL_UPSTREAMS", help="the gateway's file")]
FILE = Path("upstreams.toml")


@gateway.command()
def drain(address: Address, upstreams: File = FILE) -> None:
    """Takes a server out of use: it gets no new requests, those that it has go on."""
    _set_drain(upstreams, address, drain=True)


@gateway.command()
def resume(address: Address, upstreams: File = FILE) -> None:
    """Takes a drained server into use again."""
    _set_drain(upstreams, address, drain=False)


def _set_drain(file: Path, address: str, *, drain: bool) -> None:
    with one_sentence("trimodal gateway"):
        from trimodal.gateway.upstreams.file import set_drain

        set_drain(file, address, drain)
        typer.echo(f"{address} {'gets no new requests' if drain else 'is used again'}")


def settings_of(**values: object) -> GatewaySettings:
    """Checks what a command line says of the gateway; None: the default. Raises: OperatorError."""
    from pydantic import ValidationError

    from trimodal.errors import SettingsError
    from trimodal.gateway.settings import GatewaySettings
    from trimodal.settings import describe

    try:
        given = {name: value for name, value in values.items() if value not in (None, [])}
        return GatewaySettings.model_validate(given)
    except ValidationError as error:
        raise SettingsError(describe(error, GatewaySettings)) from None


def check_installed() -> None:
    """Looks for what the gateway imports, without the time that importing takes. Raises: ServerError."""
    from trimodal.errors import ServerError

    for name in PACKAGES:
        if find_spec(name) is None:
            raise ServerError(f"the gateway needs {name}: pip install 'trimodal[gateway]'")


def server_of(settings: GatewaySettings) -> GatewayServer:
    """The gateway of these settings.

    Raises: OperatorError when its keys or upstream are wrong, or it is not installed.
    """
    from trimodal.errors import SettingsError

    check_installed()
    from trimodal.gateway.server import GatewayServer

    try:
        return GatewayServer(settings)
    except ValueError as error:  # of the client: not an address
        raise SettingsError(str(error)) from None


def whom(settings: GatewaySettings) -> str:
    """Says who is let in."""
    if settings.keys:
        return f"keys of {settings.keys}"
    return "everybody, no keys" if settings.without_keys else "everybody on this machine, no keys"
