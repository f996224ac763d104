"""The bare engine of the language model, whose process is a double here."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trimodal.bench.bare import llm
from trimodal.bench.bare.llm import BareEngine
from trimodal.bench.targets.questions import Question, listed
from trimodal.llm.engines.protocol import EngineRequest, Output
from trimodal.llm.settings import LlmSettings


class Client:
    """Notes what it is told; its steps are those that the test puts."""

    def __init__(self) -> None:
        self.steps: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.added: list[int] = []
        self.cancelled: list[int] = []
        self.cancel = self.cancelled.append

    def add(self, request: EngineRequest) -> None:
        self.added.append(request.id)

    def receive(self) -> Any:
        return self.steps.get()

    def put(self, *outputs: Output) -> None:
        self.steps.put(SimpleNamespace(outputs=outputs))

    def close(self) -> None:
        self.steps.put(None)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    made = Client()
    monkeypatch.setattr(llm, "start_process", lambda settings: made)
    yield made
    made.close()


async def asked(engine: BareEngine, client: Client) -> asyncio.Task[Any]:
    """A request that the engine has."""
    sending = asyncio.ensure_future(engine.sender(listed([Question("hello", 8)]))(0))
    while not client.added:
        await asyncio.sleep(0)
    return sending


def test_an_answer_that_is_given_up_ends_in_the_engine(client: Client) -> None:
    """It went on while the other side had its turn."""

    async def main() -> None:
        sending = await asked(BareEngine(LlmSettings(engine="fake")), client)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(main())
    assert client.cancelled == client.added


def test_what_the_engine_refuses_is_no_answer(client: Client) -> None:
    """It counted as an empty answer, and the quickest one."""

    async def main() -> Any:
        sending = await asked(BareEngine(LlmSettings(engine="fake")), client)
        client.put(Output(client.added[0], [], "refused", error="the prompt is too long"))
        return await sending

    record = asyncio.run(main())
    assert (record.outcome, record.error) == ("invalid_arg", "the prompt is too long")
    assert client.cancelled == []


def test_tokens_are_pieces(client: Client) -> None:
    async def main() -> Any:
        sending = await asked(BareEngine(LlmSettings(engine="fake")), client)
        (id,) = client.added
        client.put(Output(id, [1, 2]))
        client.put(Output(id, [3], "length"))
        return await sending

    record = asyncio.run(main())
    assert (record.outcome, record.output_tokens, len(record.pieces)) == ("ok", 3, 2)
    assert client.cancelled == []
