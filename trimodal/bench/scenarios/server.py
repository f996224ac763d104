"""Finds or starts the server under test, and reads what it counts."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from trimodal.bench.common.serving import bench_options, metrics_page, serving
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.rounds import Counted, Result
from trimodal.bench.report.tables import Unit
from trimodal.bench.targets.counters import between, read_page
from trimodal.client import Client, Timeouts
from trimodal.errors import SettingsError
from trimodal.repository import Model, select_models
from trimodal.server.options import Profile

SETTLE_S = 0.3  # metrics are carried to the page every 50 ms
_CONNECTIONS = 4


@dataclass(frozen=True)
class LoadTest:
    """What every load test is told.

    Attributes:
        url: of a server that runs already; empty: one is started.
        model: its name on the server; empty: this project's.
        metrics: host:port of the metrics page, where `url` is given.
        changes: model → parameter → text, for a server that is started.
        stop: ends the run when it is set.
        tell: takes a line of progress.
    """

    plan: LoadPlan
    url: str = ""
    model: str = ""
    key: str = ""
    metrics: str = ""
    profile: Profile = "cpu"
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stop: asyncio.Event | None = None
    tell: Callable[[str], object] = lambda text: None

    @property
    def grpc_url(self) -> str:
        """The given address without a scheme of gRPC's. Raises: SettingsError: it is one of HTTP."""
        if self.url.startswith(("http://", "https://")):
            raise SettingsError(f"--url {self.url}: this bench goes over gRPC: host:port is needed")
        return self.url.removeprefix("grpc://")


@dataclass(frozen=True)
class ServerUnderTest:
    """A running server: addresses as host:port; `models`: of one that was started for this run."""

    grpc_url: str
    http_url: str = ""
    metrics_url: str = ""
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
        yield ServerUnderTest("" if test.url.startswith("http") else test.grpc_url, metrics_url=test.metrics)
        return
    # The changes are in the repository's files, so a bare engine reads them too.
    with bench_options(models, test.profile, test.changes) as options:
        selected = select_models(options.repository, options.models, options.profile)
        async with serving(options) as (started, _):
            urls = started.grpc_url, started.http_url, started.metrics_url
            yield ServerUnderTest(*urls, selected)


def client_of(test: LoadTest, server: ServerUnderTest) -> Client:
    """A client whose requests end with the plan's timeout."""
    try:
        url = server.grpc_url or test.grpc_url
        return Client(url, timeouts=Timeouts(silence=test.plan.timeout), connections=_CONNECTIONS)
    except ValueError as error:
        raise SettingsError(f"--url {test.url}: {error}") from None


def counted(server: ServerUnderTest) -> Counted | None:
    """For `run_cases`: reads the metrics page before and after a round. None: no page is known."""
    if not server.metrics_url:
        return None

    async def page() -> dict[str, float]:
        return read_page(await asyncio.to_thread(metrics_page, server.metrics_url))

    async def before() -> Callable[[], Awaitable[Mapping[str, float]]]:
        first = await page()

        async def after() -> Mapping[str, float]:
            await asyncio.sleep(SETTLE_S)
            return between(first, await page())

        return after

    return before


def facts(
    test: LoadTest, server: ServerUnderTest, more: Sequence[tuple[str, str]] = ()
) -> list[tuple[str, str]]:
    """Says what was measured, how, when and where."""
    plan = test.plan
    unit = "requests" if plan.requests else "s"
    long = f"{plan.requests or plan.duration:g} {unit}" if plan.requests or plan.duration else "to its end"
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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
