"""A server whose engine has one slot, held for as long as a test likes: all others wait in the queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.conftest import wait_until
from tests.e2e.metrics import listens, total
from trimodal.client import AnswerStream, Client, Timeouts
from trimodal.server.process import TritonServer

TIERS = """
default = "standard"

[tier.premium]
priority = 10

[tier.standard]
priority = 0
max_output_tokens = 1000

[tier.hasty]
ttft_deadline_ms = 1

[tier.batch]
priority = -10
max_prompt_tokens = 100
"""
STEP_MS = 10
WAIT = Timeouts(silence=30)
MANY = 1000  # tokens: 10 seconds of the engine, longer than any test needs
PROMPT = "a prompt that fills more than two blocks of the prefix cache, which hold 32 tokens each; "


def settings_in(directory: Path) -> dict[str, str]:
    """Parameters of llm, its tiers in a file there."""
    file = directory / "tiers.toml"
    file.write_text(TIERS)
    return {
        "engine": "fake",
        "fake_step_ms": str(STEP_MS),
        "max_num_seqs": "1",
        "max_queue": "4",
        "ageing_s": "1000",
        "apply_chat_template": "false",
        "tiers": str(file),
    }


@contextlib.asynccontextmanager
async def client_of(server: TritonServer) -> AsyncIterator[Client]:
    """A client; the server is idle before and after it."""
    wait_until(lambda: listens(server), "the metrics page")
    async with Client(server.grpc_url, timeouts=WAIT) as client:
        yield client
    wait_until(lambda: state(server) == (0, 0), "an idle server", 10)


def state(server: TritonServer) -> tuple[float, float]:
    return total(server, "trimodal_llm_active_requests"), total(server, "trimodal_llm_queued_requests")


async def until(server: TritonServer, active: int, queued: int) -> None:
    for _ in range(1000):
        if await asyncio.to_thread(state, server) == (active, queued):
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{state(server)} instead of {(active, queued)}")


@contextlib.asynccontextmanager
async def engine_held(client: Client) -> AsyncIterator[AnswerStream]:
    """Somebody else has the engine's only slot from here to the end."""
    async with client.stream("it holds the slot", max_tokens=MANY) as holder:
        await holder.__anext__()
        yield holder
