"""`trimodal gateway`: OpenAI's HTTP API in front of a running server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimodal.cli.common import URL, one_sentence

if TYPE_CHECKING:
    from trimodal.gateway.server import GatewayServer
    from trimodal.gateway.settings import GatewaySettings

# Also of `trimodal serve --gateway`.
Keys = Annotated[
    Path | None, typer.Option(envvar="TRIMODAL_KEYS", help="file of API keys, made by `trimodal keys add`")
]
WithoutKeys = Annotated[
    bool, typer.Option("--without-keys", help="let everybody in, also beyond this machine")
]
GatewayHost = Annotated[str, typer.Option(envvar="TRIMODAL_GATEWAY_HOST", help="address of the gateway")]
GatewayPort = Annotated[int, typer.Option(envvar="TRIMODAL_GATEWAY_PORT", help="0 picks a free one")]
CorsOrigins = Annotated[
    list[str] | None,
    typer.Option(help="web pages from here may call it from a browser, as https://example.com; repeatable"),
]
Upstream = Annotated[
    list[str] | None,
    typer.Option(
        envvar="TRIMODAL_URL",
        help="host:port[:health-port] of a server's gRPC endpoint; with its health page, requests in "
        f"a process that died end at once; repeatable; default: {URL}",
    ),
]
Upstreams = Annotated[
    Path | None,
    typer.Option(
        envvar="TRIMODAL_UPSTREAMS", help="file of such servers, instead; it may be changed meanwhile"
    ),
]

gateway = typer.Typer(help="OpenAI's HTTP API in front of Triton.", invoke_without_command=True)


@gateway.callback()
def serve(
    context: typer.Context,
    upstream: Upstream = None,
    upstreams: Upstreams = None,
    host: GatewayHost = "127.0.0.1",
    port: GatewayPort = 8080,
    keys: Keys = None,
    without_keys: WithoutKeys = False,
    cors_origin: CorsOrigins = None,
    max_body_bytes: int = typer.Option(32 << 20, help="larger requests are refused"),
    body_timeout: float = typer.Option(60.0, help="seconds until a request's body must be there"),
    header_timeout: float = typer.Option(10.0, help="seconds until a request's headers must be there"),
    silence: float = typer.Option(60.0, help="seconds that a model may be silent"),
    drain_timeout: float = typer.Option(30.0, min=0, help="seconds for running requests at the end"),
) -> None:
    """Serves OpenAI's HTTP API in front of Triton until Ctrl-C or SIGTERM, then drains."""
    if context.invoked_subcommand:
        return
    with one_sentence("trimodal gateway"):
        settings = settings_of(
            upstream=tuple(upstream or (URL,)),
            upstreams=upstreams,
            host=host,
            port=port,
            keys=keys,
            without_keys=without_keys,
            cors_origins=tuple(cors_origin or ()),
            max_body_bytes=max_body_bytes,
            body_timeout_s=body_timeout,
            header_timeout_s=header_timeout,
            silence_s=silence,
            drain_timeout_s=drain_timeout,
        )
        server = server_of(settings)
        url = server.listen()
        where = settings.upstreams or ", ".join(settings.upstream)
        typer.echo(f"OpenAI API  {url}/v1\nfor         {whom(settings)}\nmodels at   {where}")
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
    """Checks what a command line says of the gateway. Raises: OperatorError."""
    try:
        import trimodal.gateway.server  # noqa: F401
    except ImportError as error:
        from trimodal.errors import ServerError

        raise ServerError(f"the gateway needs {error.name}: pip install 'trimodal[gateway]'") from None
    from pydantic import ValidationError

    from trimodal.errors import SettingsError
    from trimodal.gateway.settings import GatewaySettings
    from trimodal.settings import describe

    try:
        return GatewaySettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(describe(error, GatewaySettings)) from None


def server_of(settings: GatewaySettings) -> GatewayServer:
    """The gateway of these settings. Raises: OperatorError when its keys or upstream are wrong."""
    from trimodal.errors import SettingsError
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
