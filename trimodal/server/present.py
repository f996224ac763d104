"""What `trimodal serve` shows: progress while loading, one table when ready. Starts nothing."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from trimodal.server.process import TritonServer


def loading(server: TritonServer) -> str:
    """One line for the spinner: what is still loading."""
    left = [name for name in server.models if name not in server.load.loaded]
    done = len(server.models) - len(left)
    if not left:
        return "opening the endpoints"
    return f"loading {done} of {len(server.models)}, waiting for: {', '.join(left)}"


def summary(server: TritonServer) -> Table:
    """Models with engine, precision and load time; endpoints and profile below."""
    # Narrow: all of it fits a terminal of 80 columns.
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption_style="", caption_justify="left")
    table.add_column("model", no_wrap=True)
    for column in ("version", "engine", "artefact", "precision"):
        table.add_column(column, overflow="fold")
    table.add_column("load", justify="right")
    for name, model in sorted(server.models.items()):
        seconds = server.load.seconds.get(name)
        table.add_row(
            name,
            server.versions.get(name, ""),
            model.engine,
            model.artefact,
            model.precision(),
            f"{seconds:.1f} s" if seconds else "–",
        )
    engines = f"engines {server.options.engines}\n" if server.options.engines else ""
    table.caption = (
        f"profile {server.options.profile}\n"
        f"{engines}"
        f"HTTP    http://{server.http_url}\n"
        f"gRPC    {server.grpc_url}\n"
        f"metrics http://{server.metrics_url}/metrics\n"
        f"log     {server.log_path}"
    )
    return table


def print_ready(server: TritonServer, console: Console) -> None:
    console.print(summary(server))
    console.print("Ready. Press Ctrl-C to stop.")
