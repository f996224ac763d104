"""The prefix cache of the starter set's model over the loss of its engine, and what is public in it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.e2e.conftest import built, wait_until
from tests.e2e.gateway.calls.starter import FACTS, HANDBOOK
from tests.e2e.llm.test_cancel import engines
from tests.e2e.metrics import total
from trimodal.client import Client, Timeouts
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

TRIES = 8
TENANTS = [f"tenant-{number}" for number in range(TRIES)]
PUBLIC = [f"{number} is your number. {HANDBOOK}" for number in range(TRIES)]
FIRST, SECOND, *_ = FACTS


async def test_system_prompts_are_there_again_and_public_ones_from_the_start(
    own_server: Callable[..., TritonServer], tmp_path: Path
) -> None:
    files = [tmp_path / f"atlas-{number}.txt" for number in range(TRIES)]
    for file, text in zip(files, PUBLIC, strict=True):
        file.write_text(text)
    changes = {"artefact": str(built("llm", "openvino-int8")), "public_prompts": " ".join(map(str, files))}
    server = own_server(("llm",), changes={"llm": changes})

    async with Client(server.grpc_url, timeouts=Timeouts(silence=60)) as client:

        async def cached(system: str, question: str, tenant: str) -> int:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
            answer = await client.complete(messages=messages, tenant=tenant, max_tokens=4, temperature=0.0)
            return answer.usage.cached

        async def in_time(asked: Iterable[tuple[str, str]]) -> int:
            """What the first one finds that was computed while the server was idle.

            A question computes its own prefix, so each is asked once, and none finds what another computed.
            """
            for system, tenant in asked:
                await asyncio.sleep(2)
                if found := await cached(system, "Who are you?", tenant):
                    return found
            return 0

        assert await in_time((text, f"new-{text[0]}") for text in PUBLIC) > 64
        for tenant in TENANTS:
            assert await cached(HANDBOOK, FIRST, tenant) == 0
            assert await cached(HANDBOOK, SECOND, tenant) > 64
        (first,) = engines(server)
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(
            wait_until, lambda: total(server, "trimodal_llm_engine_restarts_total") == 1, "the engine's end"
        )
        await asyncio.to_thread(
            wait_until, lambda: total(server, "trimodal_llm_engine_ready") == 1, "the next engine"
        )
        assert await in_time((text, f"newer-{text[0]}") for text in PUBLIC) > 64
        assert await in_time((HANDBOOK, tenant) for tenant in reversed(TENANTS)) > 64
        assert await cached(HANDBOOK, "Who are you?", "umbrella") == 0
