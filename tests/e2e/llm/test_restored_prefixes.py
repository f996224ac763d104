"""The prefix cache of the starter set's model over the loss of its engine, and what is public in it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import built, wait_until
from tests.e2e.gateway.calls.starter import FACTS, HANDBOOK
from tests.e2e.llm.test_cancel import engines
from tests.e2e.metrics import total
from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

QUESTIONS = list(FACTS)
COMPANY = HANDBOOK.replace("pocket atlas", "company's atlas")


async def test_system_prompts_are_there_again_and_public_ones_from_the_start(
    own_server: Callable[..., TritonServer], tmp_path: Path
) -> None:
    (tmp_path / "atlas.txt").write_text(HANDBOOK)
    changes = {"artefact": str(built("llm", "openvino-int8")), "public_prompts": str(tmp_path / "atlas.txt")}
    server = own_server(("llm",), changes={"llm": changes})

    async with Client(server.grpc_url, timeouts=Timeouts(silence=60)) as client:

        async def cached(system: str, question: str, tenant: str = "acme") -> int:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
            answer = await client.complete(messages=messages, tenant=tenant, max_tokens=4, temperature=0.0)
            return answer.usage.cached

        async def in_time(system: str, tenant: str) -> int:
            """What a question finds once the idle server has had time; each question is new."""
            for question in QUESTIONS[2:]:
                await asyncio.sleep(1)
                if found := await cached(system, question, tenant):
                    return found
            return 0

        public = await in_time(HANDBOOK, "acme")
        assert public > 64
        assert await cached(HANDBOOK, QUESTIONS[0], "umbrella") == public
        assert await cached(COMPANY, QUESTIONS[0]) == 0
        found = await cached(COMPANY, QUESTIONS[1])
        assert found > 64
        (first,) = engines(server)
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(
            wait_until, lambda: total(server, "trimodal_llm_engine_restarts_total") == 1, "the engine's end"
        )
        await asyncio.to_thread(
            wait_until, lambda: total(server, "trimodal_llm_engine_ready") == 1, "the next engine"
        )
        await asyncio.sleep(3)  # of an idle server
        assert await cached(COMPANY, "Who are you?", "umbrella") == 0
        assert await cached(COMPANY, "Who are you?") == found
        assert await cached(HANDBOOK, "Who are you?", "sales") == public
