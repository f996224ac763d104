"""What a side of an experiment does not answer is told, and is no quick answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks import affinity, muted
from benchmarks.litserve import over_http
from benchmarks.llm import abandoned, forms
from tests.doubles.virtual_clock import run_virtually
from trimodal.audio.values import SAMPLE_RATE
from trimodal.client.timing import Timing
from trimodal.errors import InvalidArgument, ServerError


@pytest.mark.parametrize(
    ("answer", "outcome", "said"),
    [
        (httpx.Response(503, text="no worker"), "protocol", "HTTP 503: no worker"),
        (httpx.ReadError("reset"), "unreachable", "http://peer: reset"),
    ],
)
def test_what_a_peer_does_not_answer_is_an_outcome(answer: Any, outcome: str, said: str) -> None:
    """It was a traceback, which ended the whole comparison."""

    def answering(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx.AsyncClient(base_url="http://peer", transport=httpx.MockTransport(answering))
    record = asyncio.run(over_http(client, [b"jpeg"])(0))
    assert (record.outcome, record.error, record.pieces) == (outcome, said, [])


def test_a_session_that_is_closed_before_its_last_word_has_not_heard_it() -> None:
    """It counted as heard in the moment in which the gateway closed it."""

    @asynccontextmanager
    async def closing() -> AsyncIterator[tuple[Any, Any]]:
        async def send(samples: Any) -> None: ...

        async def words() -> AsyncIterator[list[float]]:
            yield [0.4]

        yield send, words()

    samples = np.zeros(3 * SAMPLE_RATE, np.float32)
    assert run_virtually(muted.mute(closing(), samples, [])) is None


def test_an_answer_that_fails_has_no_speed() -> None:
    steps = [[SimpleNamespace(error="the grammar cannot be run")]]
    engine: Any = SimpleNamespace(add=lambda _: None, has_work=lambda: bool(steps), step=steps.pop)
    with pytest.raises(ServerError, match="grammar"):
        forms.timed(engine, None)  # type: ignore[arg-type]


def test_an_answer_without_text_is_no_first_text_at_once() -> None:
    answer = SimpleNamespace(text="", usage=SimpleNamespace(prompt=9, cached=4), timing=Timing(latency=2.0))

    async def whole() -> Any:
        return answer

    client: Any = SimpleNamespace(stream=lambda **_: SimpleNamespace(answer=whole))
    found = asyncio.run(affinity.talk("", lambda _: client, chats=2, turns=2, at_once=1))
    assert found.ttft == [2.0, 2.0]


def test_clients_that_are_refused_are_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chats were nearly alone then, and the figures said that prompts which are given up cost nothing."""

    class Refusing:
        async def complete(self, text: str, **_: Any) -> Any:
            await asyncio.sleep(0.1)
            return SimpleNamespace(text=text, timing=Timing(0.05))

        def stream(self, text: str, **_: Any) -> Any:
            raise InvalidArgument("text_input: 20000 tokens, more than 4096")

    @asynccontextmanager
    async def serving(options: Any) -> AsyncIterator[Any]:
        yield None, Refusing()

    monkeypatch.setattr(abandoned, "serving", serving)
    with pytest.raises(ServerError, match="leaves is not served: text_input: 20000 tokens"):
        run_virtually(abandoned.measure(1, 2, 1, 9, "fast"))
