"""A cache in a real Redis that is shared, killed and stopped under load: no request is lost or wrong."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cache.stores.redis_server import RedisServer
from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.metrics import total
from trimodal.client import Answer, Client
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SETTINGS = {"engine": "fake", "fake_step_ms": "2", "fake_prefill_us": "0", "cache": "exact"}
CLIENTS = 8
QUESTIONS = 12  # asked again and again, by all


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


@dataclass
class Load:
    """Clients that ask until they are told to stop; what they were answered, and what went wrong."""

    client: Client
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    problems: list[BaseException] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        await asyncio.gather(*(self._one(index) for index in range(CLIENTS)))

    async def _one(self, index: int) -> None:
        for number in itertools.count(index):
            if self.over.is_set():
                return
            # Every third is a question that nobody has asked yet.
            question = f"new {index} {number}" if number % 3 == 0 else f"known {number % QUESTIONS}"
            try:
                answer = await self.client.complete(question, max_tokens=16, timeout=BOUND)
                self.answers.append((question, answer))
            except Exception as error:
                self.problems.append(error)

    async def more(self, count: int) -> list[Answer]:
        """The next `count` answers."""
        begin = len(self.answers)
        deadline = asyncio.get_running_loop().time() + BOUND
        while len(self.answers) - begin < count:
            assert not self.problems, self.problems[0]
            assert asyncio.get_running_loop().time() < deadline, "the load stands still"
            await asyncio.sleep(0.01)
        return [answer for _, answer in self.answers[begin:]]

    async def until_hit(self) -> None:
        """Until an answer comes from the store."""
        deadline = asyncio.get_running_loop().time() + BOUND
        while not any(answer.note.cache == "exact" for answer in await self.more(1)):
            assert asyncio.get_running_loop().time() < deadline, "nothing comes from the store"


@pytest.mark.parametrize(
    ("fall", "rise"),
    [(RedisServer.kill, RedisServer.start), (RedisServer.stop, RedisServer.go_on)],
    ids=["killed", "stopped"],
)
async def test_no_request_is_lost_when_redis_goes_and_comes_back(
    own_server: Callable[..., TritonServer],
    redis: RedisServer,
    fall: Callable[[RedisServer], None],
    rise: Callable[[RedisServer], None],
) -> None:
    server = own_server(("llm",), {"llm": {**SETTINGS, "cache_store": redis.url}})
    async with Client(server.grpc_url) as client:
        load = Load(client)
        running = asyncio.create_task(load.run())
        try:
            await load.until_hit()
            await load.more(60)
            fall(redis)
            await load.more(20)  # what was under way
            without = await load.more(100)
            assert not any(answer.note.cache == "exact" for answer in without)
            rise(redis)
            await load.until_hit()
            await load.more(60)
        finally:
            load.over.set()
            await running
        assert load.problems == []
        assert len(load.answers) >= 240
        expected: dict[str, str] = {}
        for question, answer in load.answers:
            assert answer.text == expected.setdefault(question, answer.text)
            assert (answer.finish_reason, answer.usage.completion) == ("length", 16)
    await asyncio.to_thread(
        wait_until, lambda: total(server, "trimodal_cache_bypassed_total") > 0, "the counter"
    )
