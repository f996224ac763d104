"""`trimodal versions`, `trimodal route`, `trimodal reload`: what serves what share, and loading again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from trimodal.cli.common import (
    OPERATOR_KEY,
    URL,
    OperatorKeyFile,
    Url,
    connect,
    one_sentence,
    read_key,
    run,
)

Name = Annotated[str, typer.Argument(metavar="MODEL")]
Routes = Annotated[
    Path, typer.Option(envvar="TRIMODAL_ROUTES", help="the gateway's file, which names it with --routes")
]
FILE = Path("routes.toml")
HEALTH_PORT = 8003
TELL_S = 3.0  # after which a copy that is made is worth a word


def versions(url: Url = URL, routes: Routes = FILE) -> None:
    """Lists what a server has loaded: model, version, requests since it was loaded, share of the route."""
    with one_sentence("trimodal versions"):
        from trimodal.gateway.upstreams.routes import read_routes

        shares = read_routes(routes)

        async def ask() -> None:
            async with connect(url, silence=30.0) as client:
                for model in await client.models():
                    share = shares.get(model.name, {}).get(model.version)
                    typer.echo(
                        f"{model.name:24} {model.version:>4} {model.inferences:>10} requests"
                        + (f"  {share:g} %" if share else "")
                    )

        run(ask())


def route(
    model: Name,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="VERSION=PERCENT", help="as 2=5%; repeatable; the rest goes as before"),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="no route: Triton's highest version has all")] = False,
    routes: Routes = FILE,
) -> None:
    """Shares the requests to a model out among its versions; a running gateway follows within two seconds.

    A tenant stays with its version, and without keys a talk does.
    """
    with one_sentence("trimodal route"):
        from trimodal.gateway.upstreams.routes import read_routes, set_route

        if to and off:
            raise typer.BadParameter("goes with no --to", param_hint="--off")
        shares = (
            set_route(routes, model, _shares(to or ())) if to or off else read_routes(routes).get(model, {})
        )
        ordered = sorted(shares.items(), key=lambda one: int(one[0]))
        told = ", ".join(f"version {version} {share:g} %" for version, share in ordered)
        typer.echo(f"{model}: {told or 'the highest version has all'}")


def reload(
    model: Name,
    host: Annotated[str, typer.Option(envvar="TRIMODAL_HOST", help="of the server")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(envvar="TRIMODAL_HTTP_PORT")] = 8000,
    health_port: Annotated[
        int | None,
        typer.Option(
            envvar="TRIMODAL_HEALTH_PORT",
            help="where a copy (--set, --engines) is brought up to date; 8003 if that is this server's",
        ),
    ] = None,
    operator_key_file: OperatorKeyFile = None,
) -> None:
    """Loads a model of a running server again, with its files as they are now; requests go on meanwhile."""
    with one_sentence("trimodal reload"):
        import http.client
        import time

        from trimodal.errors import ServerError
        from trimodal.server.admin import Api

        key = read_key(operator_key_file, OPERATOR_KEY)
        api = Api(host, http_port, 0, key)
        began = time.monotonic()
        port = health_port or HEALTH_PORT
        page_of = api.page_of(port)
        # Ports that are both given may be mapped ones, of which the server knows nothing.
        has_page = page_of is not None if health_port else page_of == http_port
        copied: str | None = None
        try:
            if has_page:
                with _told_when_slow("the server copies its repository as it is now (--set, --engines) …"):
                    copied = api.refresh(port)
            reason = copied or api.load(model)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            reason = str(error) or type(error).__name__
        if reason:
            raise ServerError(f"model {model} was not loaded: {_explained(reason, key)}")
        hint = (
            f"; no health page of this server answers on port {port} (--health-port): where the server reads "
            "a copy (--set, --engines), those are the files that it was started with"
        )
        if page_of is not None and not has_page:
            hint += f". The page there is of the server on port {page_of}: name it if that is this one"
        typer.echo(
            f"{model} is as its files say, after {time.monotonic() - began:.1f} s: "
            f"what had changed was loaded again, nothing else{hint if copied is None else ''}"
        )


@contextmanager
def _told_when_slow(sentence: str) -> Iterator[None]:
    """Says on stderr what is waited for where that takes longer than TELL_S."""
    teller = threading.Timer(TELL_S, typer.echo, [sentence], {"err": True})
    teller.start()
    try:
        yield
    finally:
        teller.cancel()
        teller.join()


def _explained(reason: str, key: str) -> str:
    """Triton's reason for not loading a model, and what to do where it does not say that."""
    from trimodal.server.triton_log import sentence

    if "API is restricted" in reason:
        wrong = "the key is not the server's" if key else "the server wants its operator's key"
        return f"{wrong}: --operator-key-file FILE, or {OPERATOR_KEY}, of `trimodal serve` as well"
    told = sentence(reason)
    if "failed to poll" in told:
        return f"{told}: its files cannot be read, `trimodal check` names the line"
    return told


def _shares(to: list[str] | tuple[str, ...]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for one in to:
        version, _, percent = one.partition("=")
        if version in shares:
            raise typer.BadParameter(f"version {version} is there twice", param_hint="--to")
        try:
            shares[version] = float(percent.removesuffix("%"))
        except ValueError:
            raise typer.BadParameter(f"{one}: write it as 2=5%", param_hint="--to") from None
    return shares
