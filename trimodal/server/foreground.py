"""Runs one server in the foreground: progress while it loads, a summary, the drain when a signal comes."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from types import FrameType

from rich import box
from rich.console import Console
from rich.table import Table

from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions
from trimodal.server.process import Interrupted, TritonServer

Show = Callable[[list[str]], None]
_POLL = 0.2  # seconds


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


class Signals:
    """Counts SIGINT, SIGTERM and SIGHUP: the first asks for a drain, the second for an end at once."""

    def __init__(self) -> None:
        self.count = 0
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def once(self) -> bool:
        return self.count >= 1

    def twice(self) -> bool:
        return self.count >= 2


def run(options: ServerOptions, signals: Signals, *, verbose: bool) -> int:
    """Serves until the first signal; returns the exit code. Raises: ServerError, and no process is left."""
    err = Console(stderr=True, highlight=False, markup=False)
    server = TritonServer(options)

    def show(lines: list[str]) -> None:
        if verbose:
            sys.stderr.writelines(f"{line}\n" for line in lines)

    try:
        start(server, signals, err, show)
    except Interrupted:
        err.print("Stopped while loading.")
        return 0
    try:
        console = Console(highlight=False, markup=False)
        console.print(summary(server))
        console.print("Ready. Press Ctrl-C to stop.")
        serve_until_signal(server, signals, show)
        err.print(f"Draining for up to {options.drain_timeout:g} s. Press Ctrl-C again to stop at once.")
        cut = server.stop(hurry=signals.twice)
        if cut:
            err.print(f"Running requests of {', '.join(cut)} were cut.")
        err.print("Stopped.")
        return 0
    finally:
        server.kill()


def start(server: TritonServer, signals: Signals, err: Console, show: Show) -> None:
    """Starts with a spinner where stderr is a terminal."""
    spinner = err.status("starting tritonserver") if err.is_terminal else contextlib.nullcontext()
    with spinner as status:

        def on_lines(lines: list[str]) -> None:
            show(lines)
            if status:
                status.update(loading(server))

        server.start(stop=signals.once, on_lines=on_lines)


def serve_until_signal(server: TritonServer, signals: Signals, show: Show) -> None:
    """Raises: ServerError when tritonserver ends without having been asked to."""
    while not signals.once():
        status = server.wait(_POLL)
        show(server.new_lines())
        if status is not None and not signals.once():
            raise ServerError(f"tritonserver ended by itself (exit status {status})\nlog: {server.log_path}")
