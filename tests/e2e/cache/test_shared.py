"""Identical prompts at once on the real server: one generation, which lives while one client listens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.doubles.waiting import until
from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.metrics import listens, total
from trimodal.client import AnswerStream, Client
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

LISTENERS = 32
TOKENS = 120  # of 20 ms: what happens in the meantime has 2.4 s
SETTINGS = {"engine": "fake", "fake_step_ms": "20"}


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer], tmp_path_factory: pytest.TempPathFactory) -> TritonServer:
    store = tmp_path_factory.mktemp("shared") / "answers.sqlite"
    cache = {"cache": "exact", "cache_store": str(store), "cache_budget_ms": "5000"}
    server = serve(("llm",), changes={"llm": {**SETTINGS, **cache}})
    wait_until(lambda: listens(server), "the metrics page")
    return server


class Listeners:
    """Clients that asked the same; each has read its first text."""

    def __init__(self, client: Client, server: TritonServer) -> None:
        self.client, self.server = client, server
        self.tasks: list[asyncio.Task[str]] = []
        self.texts: dict[int, str] = {}
        self.streams: list[AnswerStream] = []

    async def begin(self, prompt: str) -> None:
        for index in range(LISTENERS):
            stream = self.client.stream(prompt, max_tokens=TOKENS, timeout=BOUND)
            self.streams.append(stream)
            self.tasks.append(asyncio.create_task(self._read(index, stream)))
        await until(lambda: len(self.texts) == LISTENERS, "their first text")

    async def _read(self, index: int, stream: AnswerStream) -> str:
        async for delta in stream:
            self.texts[index] = self.texts.get(index, "") + delta.text
        return stream.note.cache

    async def leave(self, tasks: list[asyncio.Task[str]]) -> None:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def listening(server: TritonServer, prompt: str) -> AsyncIterator[Listeners]:
    async with Client(server.grpc_url) as client:
        listeners = Listeners(client, server)
        try:
            await listeners.begin(prompt)
            yield listeners
        finally:
            await listeners.leave(listeners.tasks)


async def until_active(listeners: Listeners, count: float) -> None:
    """Until the engine holds so many generations; the metrics page is 50 ms behind."""
    server = listeners.server
    await asyncio.to_thread(
        wait_until, lambda: total(server, "trimodal_llm_active_requests") == count, f"{count:g} active"
    )


async def test_all_who_ask_the_same_at_once_share_one_generation(server: TritonServer) -> None:
    elsewhere = ({"tenant": "x"}, {"temperature": 0.9, "seed": 1}, {"stop": "no such text"})
    async with listening(server, "all the same") as listeners:
        await until_active(listeners, 1)
        ask = listeners.client.complete
        others = [ask("all the same", max_tokens=TOKENS, timeout=BOUND, **options) for options in elsewhere]
        answers = await asyncio.gather(*others)
        notes = await asyncio.gather(*listeners.tasks)
    assert sorted(notes) == [""] + ["coalesced"] * (LISTENERS - 1)
    assert len(set(listeners.texts.values())) == 1
    assert len(listeners.texts[0].encode()) >= TOKENS
    assert [answer.note.cache for answer in answers] == ["", "", ""]


async def test_when_half_leave_the_others_get_all_of_it(server: TritonServer) -> None:
    async with listening(server, "half leave") as listeners:
        leaving, staying = listeners.tasks[::2], listeners.tasks[1::2]
        await listeners.leave(leaving)
        await until_active(listeners, 1)
        assert not any(task.done() for task in staying)
        await asyncio.gather(*staying)
        whole = {listeners.texts[index] for index in range(1, LISTENERS, 2)}
        again = await listeners.client.complete("half leave", max_tokens=8, timeout=BOUND)
    (text,) = whole
    assert text.startswith(again.text.rstrip("\ufffd"))
    assert len(text.encode()) >= TOKENS


async def test_it_is_shared_without_a_store_too(own_server: Callable[..., TritonServer]) -> None:
    server = own_server(("llm",), {"llm": {**SETTINGS, "cache": "coalesce"}})
    async with Client(server.grpc_url) as client:
        asked = [client.complete("no store", max_tokens=40, timeout=BOUND) for _ in range(4)]
        notes = [answer.note.cache for answer in await asyncio.gather(*asked)]
        again = await client.complete("no store", max_tokens=40, timeout=BOUND)
    assert sorted(notes) == ["", "coalesced", "coalesced", "coalesced"]
    assert again.note.cache == ""
