"""Priorities and deadlines through a real server: who is served first, who is refused, who comes too late.

That an expired request never reached the engine is seen from the engine's prefix cache, which
knows every prompt that did.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from tests.e2e.llm.deadline_rig import MANY, PROMPT, client_of, engine_held, until
from trimodal.client import Client
from trimodal.errors import Unavailable
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

Wanted = list[tuple[str, dict[str, object]]]


async def queued(server: TritonServer, client: Client, wanted: Wanted) -> list[str]:
    """Queues these one after the other while the engine is held; the order in which they are served then."""
    async with engine_held(client) as holder:
        tasks, order = [], []

        async def follow(name: str, options: dict[str, object]) -> None:
            await client.complete(f"prompt {name}", max_tokens=3, **options)  # type: ignore[arg-type]
            order.append(name)

        for count, (name, options) in enumerate(wanted, 1):
            tasks.append(asyncio.create_task(follow(name, options)))
            await until(server, 1, count)
        holder.cancel()
        await asyncio.gather(*tasks)
    return order


async def test_higher_tiers_are_served_first_whoever_came_first(server: TritonServer, client: Client) -> None:
    wanted: Wanted = [
        ("batch", {"tier": "batch"}),
        ("standard", {"tier": "standard"}),
        ("lowered", {"tier": "premium", "priority": -5}),
        ("premium", {"tier": "premium"}),
    ]
    assert await queued(server, client, wanted) == ["premium", "standard", "lowered", "batch"]


async def test_what_cannot_make_it_is_refused_with_both_figures_and_when_to_come_back(
    server: TritonServer, client: Client
) -> None:
    for index in range(12):  # what the engine's speed and the lengths of answers are learned from
        await client.complete(f"{index} {PROMPT}", max_tokens=20)
    async with engine_held(client) as holder:
        with pytest.raises(Unavailable, match=r"first text.*ttft_deadline_ms is 50\b") as caught:
            await client.complete("there is no time for this one", ttft_deadline_ms=50, max_tokens=5)
        assert not holder.finish_reason, "it was refused while the other one ran, not after it"
        assert caught.value.retry_after_s
        assert caught.value.retry_after_s > 0
        assert str(caught.value).endswith(f"; retry after {caught.value.retry_after_s:g} s")
        await until(server, 1, 0)
    # Nobody in the way: it is foreseen to be in time, and is.
    answer = await client.complete("there is time for this one", ttft_deadline_ms=20_000, max_tokens=5)
    assert answer.finish_reason == "length"
    assert 0 < answer.note.predicted_ttft_ms < 20_000


async def test_what_expires_in_the_queue_never_reaches_the_engine(
    own_server: Callable[..., TritonServer], settings: dict[str, str]
) -> None:
    """A new server foresees nothing yet and lets it in; then it is too late."""
    server = own_server(("llm",), changes={"llm": settings})
    async with client_of(server) as client:
        async with engine_held(client):
            with pytest.raises(Unavailable, match=r"ttft_deadline_ms cannot be kept any more") as caught:
                await client.complete(f"expires: {PROMPT}", ttft_deadline_ms=300, max_tokens=5)
            assert caught.value.retry_after_s
            await until(server, 1, 0)
        reached = f"reaches the engine: {PROMPT}"
        await client.complete(reached, max_tokens=5)
        assert (await client.complete(reached, max_tokens=5)).usage.cached > 0
        assert (await client.complete(f"expires: {PROMPT}", max_tokens=5)).usage.cached == 0


async def test_the_deadline_of_a_whole_answer_keeps_what_came(client: Client) -> None:
    answer = await client.complete("a long story", max_tokens=MANY, deadline_ms=500)
    assert answer.finish_reason == "deadline"
    assert 0 < answer.usage.completion < MANY
    assert answer.text


async def test_a_deadline_that_passes_before_the_first_text_is_an_error(client: Client) -> None:
    async with engine_held(client):
        with pytest.raises(Unavailable, match="deadline_ms"):
            await client.complete("waits for it", max_tokens=3, deadline_ms=200)


async def test_many_that_are_refused_or_expire_leave_nothing(server: TritonServer, client: Client) -> None:
    """A burst of every kind at once; the fixture sees to it that the server is idle after it."""
    deadlines = [1, 30, 200, 20_000]

    async def one(index: int) -> str:
        try:
            answer = await client.complete(
                f"{index} of a burst", max_tokens=5, ttft_deadline_ms=deadlines[index % 4]
            )
        except Unavailable:
            return "refused"
        assert answer.finish_reason == "length"
        assert math.isnan(answer.note.predicted_ttft_ms) or answer.note.predicted_ttft_ms > 0
        return "answered"

    async with engine_held(client) as holder:
        asking = [asyncio.create_task(one(index)) for index in range(40)]
        await asyncio.sleep(0.3)
        holder.cancel()
        outcomes = await asyncio.gather(*asking)
    assert outcomes.count("answered") >= 1, "those with time to wait are served"
    assert outcomes.count("refused") >= 20, "those without are not"
