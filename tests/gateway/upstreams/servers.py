"""Fakes of several servers, and the pool over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.client.client import Client
from trimodal.client.errors import ConnectionLost
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.fake import FakeTransport
from trimodal.gateway.upstreams import pool
from trimodal.gateway.upstreams.pool import Upstreams

BOUND = 20.0


class Servers:
    """Fakes by address, and the pool over them."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *fakes: FakeTransport,
        file: Path | None = None,
        routes: Path | None = None,
    ) -> None:
        monkeypatch.setattr(pool, "LOOK_S", 0.005)
        self.fakes = {f"host-{number}:8001": fake for number, fake in enumerate(fakes)}
        self.pool = Upstreams(file or list(self.fakes), self.fakes.__getitem__, routes)
        self.client = Client(transport=self.pool, timeouts=Timeouts(silence=10))

    async def __aenter__(self) -> Servers:
        self.pool.start(Timeouts(connect=5))
        await self.pool.looked()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        assert [server.running for server in self.pool.servers] == [0] * len(self.pool.servers)

    def first_of(self, prompt: str) -> tuple[FakeTransport, FakeTransport]:
        """The fake that a prompt belongs to, and the other one."""
        order = self.pool._order("llm", prompt.encode())
        one, two = (self.fakes[server.address] for server in order)
        return one, two


def asked(fake: FakeTransport) -> int:
    return sum(request.model == "llm" for request in fake.requests)


LOST = ConnectionLost("the server at host went away")
