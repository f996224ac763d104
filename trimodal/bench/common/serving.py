"""Starts servers for benches, reads their settings and their metrics page."""

from __future__ import annotations

import http.client
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.paths import default_engines, default_repository
from trimodal.repository import Model
from trimodal.server.options import Profile, ServerOptions
from trimodal.server.overlay import overlay
from trimodal.server.process import TritonServer
from trimodal.settings import S, parse_parameters


@contextmanager
def bench_options(
    models: Sequence[str],
    profile: Profile,
    changes: Mapping[str, Mapping[str, str]],
) -> Iterator[ServerOptions]:
    """Options of a server on free ports whose `repository` has these changes in its files already.

    Raises:
        OperatorError: a change of a model or parameter that the repository lacks.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-bench-") as folder:
        target = Path(folder) / "models"
        overlay(default_repository(), target, changes, profile, engines=default_engines())
        options = ServerOptions.on_free_ports(*models, repository=target, profile=profile)
        yield replace(options, engines=None)


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
