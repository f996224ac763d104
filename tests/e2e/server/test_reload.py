"""Models that are loaded over themselves, with another configuration, in a server that answers meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import fakes
from tests.e2e.conftest import wait_until
from trimodal.client import Client
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e
DELAY = re.compile(r"dynamic_batching \{(\s*max_queue_delay_microseconds: \d+)?")


def is_private(server: TritonServer) -> bool:
    """Whether no other user can read what passes between Triton and the models, and its log."""
    regions = list(Path("/dev/shm").glob(f"{server.repository.parent.name}-*"))
    assert len(regions) >= 2
    return all(file.stat().st_mode & 0o077 == 0 for file in (*regions, server.log_path))


def unloads(server: TritonServer, model: str) -> int:
    return server.log_path.read_text().count(f"successfully unloaded '{model}'")


@pytest.mark.parametrize("loads", [3, pytest.param(40, marks=pytest.mark.slow)])
async def test_loads_over_a_model_harm_no_request(
    own_server: Callable[..., TritonServer], tmp_path: Path, loads: int
) -> None:
    """Old and new process had their metrics in common: the server ended with signal 11 within a few loads."""
    server = own_server(("vision", "embedding"), fakes.changes(tmp_path))
    done, answers = asyncio.Event(), 0

    async def ask(client: Client) -> None:
        nonlocal answers
        while not done.is_set():
            await asyncio.gather(client.classify([fakes.png(1)]), client.embed(["a text"]))
            answers += 1

    async with Client(server.url) as client:
        asking = [asyncio.create_task(ask(client)) for _ in range(4)]
        try:
            for number in range(loads):
                for model in ("vision", "embedding"):
                    file = server.repository / model / "configs" / "cpu.pbtxt"
                    delay = f"dynamic_batching {{ max_queue_delay_microseconds: {number + 1}"
                    file.write_text(DELAY.sub(delay, file.read_text()))
                    assert await asyncio.to_thread(server.api.load, model) == ""
                    assert is_private(server)
                    seen = answers
                    while answers <= seen and not any(one.done() for one in asking):
                        await asyncio.sleep(0.01)
        finally:
            done.set()
            await asyncio.gather(*asking)
    # Triton unloads what a load replaced in its own time, after it answered the load.
    wait_until(lambda: unloads(server, "vision") == loads, f"{loads} unloads of vision")
