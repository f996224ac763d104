"""The gateway as it comes, in front of the usual fakes, is one for each file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.gateway.conftest import Running, Serve, fake_triton, start_gateway


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with ExitStack() as running:
        triton = fake_triton()
        yield Running(start_gateway(running, triton), triton, running)


@pytest.fixture
def serve(serve: Serve, shared: Running) -> Iterator[Serve]:
    """Like the one beside it, but without arguments it starts none: `triton` has forgotten what was sent."""
    with ExitStack() as clients:

        def start(*arguments: object, **settings: object) -> Running:
            if arguments or settings:
                return serve(*arguments, **settings)
            shared.triton.requests.clear()
            shared.triton.cancelled.clear()
            return Running(shared.url, shared.triton, clients)

        yield start
