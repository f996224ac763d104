"""Runs one server in the foreground: progress while it loads, a summary, the drain when a signal comes."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType

from rich.console import Console

from trimodal.errors import STARVED, OperatorError, ServerError
from trimodal.report.console import Table, print_table
from trimodal.server.artefacts import newer_beside
from trimodal.server.options import ServerOptions
from trimodal.server.process import Interrupted, TritonServer
from trimodal.server.supervision.supervisor import Backoff

_POLL = 0.2  # seconds
_LAST_S = 1.0  # of a drain, for the server alone, however long the gateway's took
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def loading(server: TritonServer) -> str:
    """One line for the spinner: what is still loading."""
    done = len(server.load.loaded & server.models.keys())
    return f"loaded {done} of {len(server.models)}, waiting for: {server.waiting}"


def show_summary(server: TritonServer, console: Console) -> None:
    """Prints the models with engine, precision and load time, then endpoints and how long all took."""
    rows = []
    start, before = server.ready - server.began, server.launched - server.began
    for name, model in sorted(server.models.items()):
        seconds = server.load.seconds.get(name)
        # By the log's wall clock: where that was set meanwhile, it tells nothing.
        load = f"{seconds:.1f} s" if seconds and seconds <= start + 1 else "–"
        rows.append([name, model.engine, Path(model.artefact).name, model.precision(), load])
    print_table(Table("", ("model", "engine", "artefact", "precision", "load"), rows, names=4), console)
    lines = [f"profile {server.options.profile}"]
    if server.options.engines:
        lines.append(f"engines {server.options.engines}")
    lines += [
        f"HTTP    http://{server.http_url}",
        f"gRPC    {server.grpc_url}",
        f"metrics http://{server.metrics_url}/metrics",
        f"health  http://{server.health_url}/ready",
        f"log     {server.log_path}",
        f"ready   after {start:.1f} s: {before:.1f} s until tritonserver started, "
        f"{start - before:.1f} s until all models were there, {server.load.last} last",
        *filter(None, map(newer_beside, server.models.values())),
    ]
    # Not folded: what is copied from it must be whole.
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


class Signals:
    """Counts SIGINT, SIGTERM and SIGHUP: the first asks for a drain, the second for an end at once.

    A SIGHUP that is ignored stays so: under nohup the server outlives its terminal.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = 0.0  # when it came, by the monotonic clock
        for name in _ENDING:
            if name != signal.SIGHUP or signal.getsignal(name) != signal.SIG_IGN:
                signal.signal(name, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.first = self.first or time.monotonic()

    def ignore(self) -> None:
        """From now on they change nothing: the process is about to end, with the status that it has.

        Python gives its handlers back while it ends; one more SIGTERM then made the status -15.
        """
        for name in _ENDING:
            signal.signal(name, signal.SIG_IGN)

    def once(self) -> bool:
        return self.count >= 1

    def twice(self) -> bool:
        return self.count >= 2


class ServiceManager:
    """systemd, if it started this process and wants to be told (sd_notify). What it is told never fails.

    NOTIFY_SOCKET names its socket, WATCHDOG_USEC how often it wants a sign of life.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        try:
            # Twice as often as it wants it, as its manual says.
            self._every_s = int(environment.get("WATCHDOG_USEC", "0")) / 2e6
        except ValueError:
            self._every_s = 0.0
        self._next = 0.0

    def tell(self, **state: str) -> None:
        """Sends names and values, such as READY="1"."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value}" for name, value in state.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)  # one that reads nothing any more must not stop us
            end.sendto(text.encode(), self._address)

    def sign_of_life(self, alive: Callable[[], bool]) -> None:
        """Tells that the server lives when that is due and true; to be called several times a second."""
        if self._every_s and time.monotonic() >= self._next and alive():
            self._next = time.monotonic() + self._every_s
            self.tell(WATCHDOG="1")


@contextlib.contextmanager
def serving(
    options: ServerOptions,
    signals: Signals,
    *,
    verbose: bool,
    meanwhile: Callable[[TritonServer], object] | None = None,
) -> Iterator[TritonServer]:
    """A server while the block lasts, with its progress and summary before it, and its drain after it.

    `meanwhile` as of `TritonServer.start`.

    Raises: ServerError, and Interrupted when a signal came while it was loading; no process is left.
    """
    err = Console(stderr=True, highlight=False, markup=False)
    server = TritonServer(options)
    spinner = err.status("starting tritonserver") if err.is_terminal else contextlib.nullcontext()
    try:
        with spinner as status:

            def on_lines(lines: list[str]) -> None:
                _write(lines, verbose=verbose)
                if status:
                    status.update(loading(server))

            server.start(
                stop=signals.once, on_lines=on_lines, meanwhile=lambda: meanwhile and meanwhile(server)
            )
        show_summary(server, Console(highlight=False))
        yield server
        # What stood before the server, such as a gateway, has drained in the same time.
        left = options.drain_timeout - (time.monotonic() - signals.first)
        if options.drain_timeout:
            left = max(left, _LAST_S)
        cut = server.stop(left, hurry=signals.twice)
        if cut:
            err.print(f"Running requests of {', '.join(cut)} were cut.")
        err.print("Stopped.")
    finally:
        server.kill()


def wait_for_signal(server: TritonServer, signals: Signals, *, verbose: bool, restart: bool) -> None:
    """Returns at the first signal; until then a service manager hears that the server lives.

    A server that ends by itself is started again if `restart`. Raises: ServerError: it ended, and is not.
    """
    manager, backoff = ServiceManager(), Backoff()
    manager.tell(READY="1")
    while not signals.once():
        status = server.wait(_POLL)
        _write(server.new_lines(), verbose=verbose)
        if status is None:
            manager.sign_of_life(server.answers)
        elif not signals.once():
            problem = f"tritonserver ended by itself (exit status {status})"
            if not restart:
                raise ServerError(f"{problem}\nlog: {server.log_path}")
            began = time.monotonic()
            while problem and not signals.once():
                problem = _start_again(server, signals, manager, backoff.next(), problem, verbose=verbose)
            if not problem:
                sys.stderr.write(f"Ready again after {time.monotonic() - began:.1f} s.\n")
    server.begin_drain()
    manager.tell(STOPPING="1")
    limit = server.options.drain_timeout
    sys.stderr.write(f"Draining for up to {limit:g} s. Press Ctrl-C again to stop at once.\n")


def _start_again(
    server: TritonServer,
    signals: Signals,
    manager: ServiceManager,
    wait: float,
    problem: str,
    *,
    verbose: bool,
) -> str:
    """Starts a server that ended once more, after `wait` seconds; why it does not serve, or nothing."""

    def stop() -> bool:
        manager.sign_of_life(lambda: True)  # loading may take longer than the manager waits
        return signals.once()

    sys.stderr.write(f"{problem}; starting it again{f' in {wait:g} s' if wait else ''}.\n")
    manager.tell(STATUS=f"{problem}; it is started again")
    until = time.monotonic() + wait
    while time.monotonic() < until and not stop():
        time.sleep(_POLL)
    try:
        server.restart(stop=stop, on_lines=lambda lines: _write(lines, verbose=verbose))
    except Interrupted:
        return problem
    except (OperatorError, OSError, http.client.HTTPException, ValueError, KeyError, *STARVED) as error:
        return str(error) or type(error).__name__  # perhaps a full disk
    manager.tell(STATUS="")
    return ""


def _write(lines: list[str], *, verbose: bool) -> None:
    if verbose:
        sys.stderr.writelines(f"{line}\n" for line in lines)
