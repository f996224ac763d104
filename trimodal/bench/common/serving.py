"""Starts what both sides of a bench read and ask, and reads what the server counted meanwhile."""

from __future__ import annotations

import http.client
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tritonclient.grpc import InferenceServerClient

from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.paths import default_engines, default_repository
from trimodal.repository import Model
from trimodal.server.options import Edit, Profile, ServerOptions
from trimodal.server.overlay import overlay
from trimodal.server.process import TritonServer
from trimodal.settings import S, parse_parameters


@contextmanager
def bench_options(
    models: Sequence[str],
    profile: Profile,
    changes: Mapping[str, Mapping[str, str]],
    edit: Edit | None = None,
) -> Iterator[ServerOptions]:
    """Options of a server on free ports whose `repository` has these changes in its files already.

    Raises:
        OperatorError: a change of a model or parameter that the repository lacks.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-bench-") as folder:
        target = Path(folder) / "models"
        overlay(default_repository(), target, changes, profile, edit, default_engines())
        options = ServerOptions.on_free_ports(*models, repository=target, profile=profile)
        yield replace(options, engines=None)


def built(model: Model, artefact: str) -> Path:
    """Where the server finds an artefact: absolute, else in the engines' volume, else in the repository."""
    engines = default_engines()
    if engines and (found := engines.expanduser().resolve() / model.name / artefact).is_dir():
        return found
    return (model.version_directory / artefact).resolve()


def settings_of(cls: type[S], model: Model, changes: Mapping[str, str] | None = None) -> S:
    """Returns the settings that the served model has.

    Raises:
        SettingsError: names the file and the key that is malformed.
    """
    source = str(model.config_file.relative_to(model.directory.parent))
    return parse_parameters(cls, {**model.parameters, **(changes or {})}, source=source)


@asynccontextmanager
async def serving(options: ServerOptions, **client: Any) -> AsyncIterator[tuple[TritonServer, Client]]:
    """A server and a client of it, which `client` has further arguments for.

    Raises:
        OperatorError: the server cannot start.
    """
    with TritonServer(options) as server:
        async with Client(server.grpc_url, **client) as connected:
            yield server, connected


def metrics_page(server: str) -> str:
    """Fetches the metrics page at `host:port`. Raises ServerError: it does not answer."""
    connection = http.client.HTTPConnection(server, timeout=10.0)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(f"the metrics page at {server} does not answer: {error}") from None
    finally:
        connection.close()


class Counts(NamedTuple):
    """A model's counters since it was loaded: items, runs, and nanoseconds of all requests."""

    inferences: int
    executions: int
    queue_ns: int
    model_ns: int


class StepTimes(NamedTuple):
    """One model during a round: mean items in a run, and mean milliseconds of a request."""

    batch: float
    queue_ms: float
    model_ms: float


class Statistics:
    """Reads the counters of some models of one server."""

    def __init__(self, url: str, models: Sequence[str]) -> None:
        self._client = InferenceServerClient(url)
        self._models = models

    def read(self) -> dict[str, Counts]:
        """Model → counters."""
        counts = {}
        for name in self._models:
            one = self._client.get_inference_statistics(name).model_stats[0]
            times = one.inference_stats
            inside = times.compute_input.ns + times.compute_infer.ns + times.compute_output.ns
            counts[name] = Counts(one.inference_count, one.execution_count, times.queue.ns, inside)
        return counts

    def close(self) -> None:
        self._client.close()


def between(before: Mapping[str, Counts], after: Mapping[str, Counts], items: int) -> dict[str, StepTimes]:
    """Model → what happened between two readings, of requests with `items` items each."""
    found = {}
    for name, now in after.items():
        inferences, runs, queue_ns, model_ns = (new - old for new, old in zip(now, before[name], strict=True))
        requests = max(1, inferences // items)
        found[name] = StepTimes(
            inferences / max(1, runs), queue_ns / requests / 1e6, model_ns / requests / 1e6
        )
    return found
