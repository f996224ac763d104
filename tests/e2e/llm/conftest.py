"""A server with tiers whose engine has one slot, unless a module has a server of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.e2e.llm.deadline_rig import client_of, settings_in
from trimodal.client import Client
from trimodal.server.process import TritonServer


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return settings_in(tmp_path_factory.mktemp("tiers"))


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer], settings: dict[str, str]) -> TritonServer:
    return serve(("llm",), changes={"llm": settings})


@pytest.fixture
async def client(server: TritonServer) -> AsyncIterator[Client]:
    async with client_of(server) as client:
        yield client
