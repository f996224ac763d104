"""Finds or starts the server under test, and reads what it counts."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.rounds import Result
from trimodal.bench.report import Unit
from trimodal.client import Client, Timeouts
from trimodal.errors import SettingsError
from trimodal.repository import Model
from trimodal.server.options import Profile, ServerOptions
from trimodal.server.process import TritonServer

_CONNECTIONS = 4


@dataclass(frozen=True)
class LoadTest:
    """What every load test is told. Raises: SettingsError: changes of a server that runs already.

    Attributes:
        url: of a server that runs already; empty: one is started.
        model: its name on the server; empty: this project's.
        changes: model → parameter → text, for a server that is started.
        stop: ends the run when it is set.
        tell: takes a line of progress.
    """

    plan: LoadPlan
    url: str = ""
    model: str = ""
    key: str = ""
    profile: Profile = "cpu"
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stop: asyncio.Event | None = None
    tell: Callable[[str], object] = lambda text: None

    def __post_init__(self) -> None:
        if self.url and self.changes:
            raise SettingsError("--set changes a server that is started for the test: leave it or --url out")


@dataclass(frozen=True)
class ServerUnderTest:
    """A running server; `models`: of one that was started for this run."""

    url: str
    models: Mapping[str, Model] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """A load test: what its report is made of."""

    title: str
    unit: Unit
    results: Sequence[Result]
    facts: Sequence[tuple[str, str]]


@asynccontextmanager
async def server_under_test(test: LoadTest, *models: str) -> AsyncIterator[ServerUnderTest]:
    """The server at `test.url`, or one of these models on free ports.

    Raises:
        OperatorError: a setting is wrong, or the server does not start.
    """
    if test.url:
        yield ServerUnderTest(test.url.removeprefix("grpc://"))
        return
    server = TritonServer(ServerOptions.on_free_ports(*models, profile=test.profile, changes=test.changes))
    cancelled = threading.Event()
    # On a thread: meanwhile the event loop takes Ctrl-C.
    starting = asyncio.ensure_future(asyncio.to_thread(server.start, stop=cancelled.is_set))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.gather(starting, return_exceptions=True)
        server.kill()
        raise
    try:
        # As they are served: a bare engine reads the changes, too.
        yield ServerUnderTest(server.grpc_url, server.models)
    finally:
        server.stop()


def client_of(test: LoadTest, server: ServerUnderTest) -> Client:
    """A client whose requests end with the plan's timeout. Raises: SettingsError: it is no such address."""
    if "://" in server.url:
        raise SettingsError(f"--url {test.url}: this bench goes over gRPC: host:port is needed")
    try:
        return Client(server.url, timeouts=Timeouts(silence=test.plan.timeout), connections=_CONNECTIONS)
    except ValueError as error:
        raise SettingsError(f"--url {test.url}: {error}") from None


def facts(
    test: LoadTest, server: ServerUnderTest, more: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, str]]:
    """Says what was measured, how, when and where."""
    plan = test.plan
    unit = "requests" if plan.requests else "s"
    long = f"{plan.requests or plan.duration:g} {unit}"
    changed = [f"{model}.{key}={text}" for model, some in test.changes.items() for key, text in some.items()]
    found = [
        ("server", f"started for this run, profile {test.profile}" if server.models else test.url),
        *more,
        ("load", ", ".join(case.name for case in plan.cases)),
        ("length", f"{long} a case, {plan.rounds} round(s), after a warm-up of {plan.warmup:g} {unit}"),
        ("objectives", plan.slo.text or "none"),
        ("timeout", f"{plan.timeout:g} s a request"),
        ("settings", ", ".join(changed)),
        ("client", f"{platform.node()}, {_processor()}, {os.cpu_count()} cores, {platform.system()}"),
        ("when", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
    ]
    return [(name, value) for name, value in found if value]


def _processor() -> str:
    with suppress(OSError):
        if found := re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()
