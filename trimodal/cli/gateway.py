"""`trimodal gateway`: OpenAI's HTTP API in front of a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimodal.cli.common import URL, one_sentence

Upstream = Annotated[str, typer.Option(envvar="TRIMODAL_URL", help="host:port of Triton's gRPC endpoint")]


def gateway(
    upstream: Upstream = URL,
    host: str = typer.Option("127.0.0.1", envvar="TRIMODAL_GATEWAY_HOST", help="address to listen on"),
    port: int = typer.Option(8080, envvar="TRIMODAL_GATEWAY_PORT", help="0 picks a free one"),
    keys: Path | None = typer.Option(
        None, envvar="TRIMODAL_KEYS", help="file of API keys, made by `trimodal keys add`"
    ),
    without_keys: bool = typer.Option(
        False, "--without-keys", help="let everybody in, also beyond this machine"
    ),
    cors_origin: list[str] | None = typer.Option(
        None, help="web pages from here may call it from a browser, as https://example.com; repeatable"
    ),
    max_body_bytes: int = typer.Option(32 << 20, help="larger requests are refused"),
    body_timeout: float = typer.Option(60.0, help="seconds until a request's body must be there"),
    header_timeout: float = typer.Option(10.0, help="seconds until a request's headers must be there"),
    silence: float = typer.Option(60.0, help="seconds that a model may be silent"),
    drain_timeout: float = typer.Option(30.0, min=0, help="seconds for running requests at the end"),
) -> None:
    """Serves OpenAI's HTTP API in front of Triton until Ctrl-C or SIGTERM, then drains."""
    with one_sentence("trimodal gateway"):
        server = _server(
            upstream=upstream,
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
        url = server.listen()
        who = f"keys of {keys}" if keys else "everybody on this machine, no keys"
        if without_keys:
            who = "everybody, no keys"
        typer.echo(f"OpenAI API  {url}/v1\nfor         {who}\nmodels at   {upstream}\nPress Ctrl-C to stop.")
        server.run()
        typer.echo("Stopped.", err=True)


def _server(**settings: object):  # type: ignore[no-untyped-def]
    """The server of these settings. Raises: OperatorError."""
    try:
        from trimodal.gateway.server import GatewayServer
    except ImportError as error:
        from trimodal.errors import ServerError

        raise ServerError(f"the gateway needs {error.name}: pip install 'trimodal[gateway]'") from None
    from pydantic import ValidationError

    from trimodal.errors import SettingsError
    from trimodal.gateway.settings import GatewaySettings
    from trimodal.settings import describe

    try:
        return GatewayServer(GatewaySettings.model_validate(settings))
    except ValidationError as error:
        raise SettingsError(describe(error, GatewaySettings)) from None
    except ValueError as error:  # of the client: not an address
        raise SettingsError(str(error)) from None
