"""Starts servers for benches, and reads their settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from trimodal.client import Client
from trimodal.repository import Model
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer
from trimodal.settings import S, parse_parameters


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
