"""Prompts that clients give up while they are computed: the others' answers stay right, and nothing is kept.

How long the others wait is measured by `python -m benchmarks.llm.abandoned`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import wait_until
from tests.e2e.metrics import total
from tests.llm.engines.openvino.conftest import QUESTIONS, tiny  # noqa: F401
from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

KNOBS = {"numerics": "reproducible", "threads": "1", "num_kv_blocks": "96", "max_num_batched_tokens": "64"}
# Prompts of up to 400 tokens, whose beginnings the abandoned ones share.
PROMPTS = [f"{question} " * (1 + 4 * place) for place, question in enumerate(QUESTIONS[:8])]
ABANDONED, CLIENTS, CHATTING = 200, 8, 4


async def answers(client: Client) -> list[str]:
    return [(await client.complete(one, max_tokens=24, temperature=0.0)).text for one in PROMPTS]


async def abandon(client: Client, rng: random.Random, count: int) -> None:
    for _ in range(count):
        prompt = rng.choice(PROMPTS)
        beginning = prompt[: rng.randrange(len(prompt))] + "?" * rng.randrange(99)
        stream = client.stream(beginning, max_tokens=60)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stream.answer(), rng.uniform(0, 0.2))
        stream.cancel()


async def test_answers_are_the_same_after_two_hundred_abandoned_prompts(
    serve: Callable[..., TritonServer],
    tiny: Path,  # noqa: F811
) -> None:
    server = serve(("llm",), changes={"llm": {**KNOBS, "artefact": str(tiny)}})
    async with Client(server.grpc_url, timeouts=Timeouts(silence=60)) as client:
        before = await answers(client)
        leaving = [abandon(client, random.Random(seed), ABANDONED // CLIENTS) for seed in range(CLIENTS)]
        chatting = [answers(client) for _ in range(CHATTING)]
        _, beside = await asyncio.gather(asyncio.gather(*leaving), asyncio.gather(*chatting))
        assert beside == [before] * CHATTING
        assert await answers(client) == before
        for name in ("active_requests", "queued_requests", "kv_usage_ratio"):
            wait_until(lambda name=name: total(server, f"trimodal_llm_{name}") == 0, name)  # type: ignore[misc]
