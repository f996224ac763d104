"""`trimodal top`: a live view of a running server in the terminal."""

from __future__ import annotations

import typer

from trimodal.cli.common import API_KEY, ApiKeyFile, is_typed, one_sentence, read_key


def top(
    context: typer.Context,
    url: str = typer.Option(
        "localhost:8002",
        "--url",
        envvar="TRIMODAL_METRICS_URL",
        help="metrics of the server: host:port or URL",
    ),
    gateway: str | None = typer.Option(
        None, "--gateway", help="host:port or URL of a gateway: its requests too, and which models answer"
    ),
    api_key_file: ApiKeyFile = None,
    health: str | None = typer.Option(
        None, "--health", help="host:port of the server's health page; default: port 8003 beside --url"
    ),
    interval: float = typer.Option(2.0, "--interval", min=0.1, max=3600, help="seconds between two looks"),
    once_: bool = typer.Option(
        False, "--once", help="print one picture of --interval seconds and exit, as without a terminal"
    ),
    json_: bool = typer.Option(False, "--json", help="the same as JSON: seconds, rates per second, shares"),
) -> None:
    """Show live what a server does: requests, latencies, queues, batches, caches, errors. Ctrl-C ends it.

    Percentiles and rates are those of the time between two looks. A server that goes away is waited for.
    """
    if api_key_file and not gateway and is_typed(context, "api_key_file"):
        raise typer.BadParameter("--api-key-file is of a gateway: it goes with --gateway")
    import time
    from urllib.parse import urlsplit

    from rich.console import Console

    from trimodal.top.watch import Top, health_page, live, metrics_url, once, target

    with one_sentence("trimodal top"):
        host = urlsplit(metrics_url(url)).hostname or ""
        beside = f"[{host}]:8003" if ":" in host else f"{host}:8003"
        view = Top(
            target("server", url),
            target("gateway", gateway, read_key(api_key_file, API_KEY)) if gateway else None,
            health_page(health or beside),
        )
        console = Console(highlight=False)
        if once_ or json_ or not console.is_terminal:
            once(view, console, interval=interval, as_json=json_, sleep=time.sleep)
        else:
            live(view, console, interval=interval, sleep=time.sleep)
