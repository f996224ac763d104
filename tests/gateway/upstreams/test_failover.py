"""What fails, or waits where nothing answers, is asked elsewhere: what may be, and how often."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.doubles.waiting import until
from tests.gateway.conftest import fails, fake_triton, vectors
from tests.gateway.upstreams.servers import BOUND, LOST, Servers, asked
from trimodal.client.errors import ConnectionLost, Timeout, from_message, from_status
from trimodal.client.transports.base import Request, Tensors, Timeouts
from trimodal.client.transports.fake import FakeTransport, llm_outputs, scripted
from trimodal.client.values import Model
from trimodal.errors import (
    InternalError,
    InvalidArgument,
    ModelNotFound,
    RequestError,
    TrimodalError,
    Unavailable,
)
from trimodal.gateway.upstreams.server import Upstream
from trimodal.llm.request.outputs import Delta, columns


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        Unavailable("the queue is full", 2.0),
        from_message("Stub process 'llm_0_0' is not healthy.", by_model=True),
        from_status(grpc.StatusCode.INTERNAL, "Stub process 'llm_0_0' is not healthy.", "h:1"),
    ],
    ids=["lost", "full", "stub", "stub of a unary model"],
)
async def test_what_failed_before_its_first_text_is_asked_elsewhere(
    monkeypatch: pytest.MonkeyPatch, error: RequestError
) -> None:
    # An empty response is no text: half a character waits for the other half.
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = fails(error, "", "")
        two.functions["llm"] = scripted("from the other")
        assert (await servers.client.complete("hi")).text == "from the other"
        assert (asked(one), asked(two)) == (1, 1)
        assert sum(server.moved for server in servers.pool.servers) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LOST, ["word"]),  # after its first text
        (InvalidArgument("max_tokens is 0"), []),  # the request's own fault
        (InvalidArgument("lora_name is 'is not healthy': none"), []),  # it took the model from everyone
        (InternalError("the model failed"), []),
    ],
)
async def test_what_is_told_and_not_asked_elsewhere(
    monkeypatch: pytest.MonkeyPatch, error: RequestError, words: list[str]
) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = fails(error, *words)
        with pytest.raises(type(error), match=str(error)):
            await servers.client.complete("hi")
        assert asked(two) == 0
        if isinstance(error, RequestError):
            assert servers.pool.state["llm"]


async def test_thoughts_are_told_and_not_thought_again_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client had those of both servers, in one answer."""

    async def thinks(request: Request) -> AsyncIterator[Tensors]:
        yield columns(Delta("", "", completion_tokens=1, reasoning="Let me think. ", reasoning_tokens=1))
        raise LOST

    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = thinks
        stream = servers.client.stream("hi")
        with pytest.raises(ConnectionLost):
            await stream.answer()
        assert (stream.reasoning, asked(two)) == ("Let me think. ", 0)


async def test_each_server_is_asked_once_and_a_refusal_says_more_than_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = fails(Unavailable("the queue is full", 3.0))
        two.reachable = False
        with pytest.raises(Unavailable, match="the queue is full") as caught:
            await servers.client.complete("hi")
        assert caught.value.retry_after_s == 3.0
        assert asked(one) == 1


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        for fake in servers.fakes.values():
            fake.reachable = False
        for _ in range(2):  # also when it is known
            with pytest.raises(Unavailable, match="no model server takes requests now") as caught:
                await servers.client.complete("hi")
            assert caught.value.retry_after_s == 1.0
            with pytest.raises(Unavailable):
                await servers.client.embed(["hi"])
            with pytest.raises(Unavailable):
                await servers.client.models()
            await until(lambda: not any(servers.pool.state.values()))
        assert servers.pool.state["llm"] is False, "a model that was served is still told"


@pytest.mark.parametrize("away", [0, 1])
async def test_a_model_whose_only_server_was_never_reached_is_not_unknown(
    monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """It was, to a gateway that began while that server was away: 404, which no client asks again."""
    fakes = [FakeTransport(vision=vectors), FakeTransport(vision=vectors)]
    fakes[away] = fake_triton()
    fakes[away].reachable = False
    async with Servers(monkeypatch, *fakes) as servers:
        for _ in range(2):  # by turns
            with pytest.raises(Unavailable, match="no server that is reached has the model 'llm'; ") as told:
                await servers.client.complete("hi")
            assert told.value.retry_after_s == 1.0
            with pytest.raises(Unavailable, match="no server that is reached has the model 'embedding'; "):
                await servers.client.embed(["hi"])
        fakes[away].reachable = True
        await until(lambda: servers.pool.state.get("llm", False))
        await servers.client.complete("hi")
        fakes[away].reachable = False
        with pytest.raises(ModelNotFound):
            await servers.client.complete("hi", model="gpt")


async def test_the_deadline_of_a_request_that_is_asked_again_is_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slow(request: Request) -> AsyncIterator[Tensors]:
        await asyncio.sleep(0.1)
        raise LOST
        yield {}

    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = slow
        await servers.client.complete("hi", ttft_deadline_ms=5000)
        (request,) = two.requests
        assert 1 <= request.inputs["ttft_deadline_ms"][0] <= 4900
        await until(lambda: all(server.models["llm"] for server in servers.pool.servers))
        with pytest.raises(ConnectionLost):
            await servers.client.complete("hi", ttft_deadline_ms=50)
        assert len(two.requests) == 1, "there was no time left for another"


class Hanging:
    """Models that say so many words and then nothing until `over` is set."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.over = asyncio.Event()

    async def llm(self, request: Request) -> AsyncIterator[Tensors]:
        for word in self._words:
            yield llm_outputs(word)
        await self.over.wait()
        yield llm_outputs("at last", "stop")

    async def embedding(self, request: Request) -> Tensors:
        await self.over.wait()
        return vectors(request)


def stop(*fakes: FakeTransport) -> None:
    """Has looks at them end without an answer, as at a stopped process."""

    async def models(timeouts: Timeouts) -> list[Model]:
        raise Timeout("it did not finish before the deadline")

    for fake in fakes:
        fake.models = models  # type: ignore[method-assign]


async def test_what_waits_where_nothing_answers_any_more_is_asked_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stopped server keeps its connections: it was waited for until a model may be silent no longer."""
    hanging = Hanging()
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions |= {"llm": hanging.llm, "embedding": hanging.embedding}
        two.functions["llm"] = scripted("from the other")
        await servers.client.max_batch_size("embedding")
        embedded = [asyncio.ensure_future(servers.client.embed(["hi"])) for _ in range(2)]  # by turns
        text = asyncio.ensure_future(servers.client.complete("hi"))
        await until(lambda: len(one.requests) == 2)
        stop(one)
        assert (await text).text == "from the other"
        await asyncio.gather(*embedded)
        assert len(one.cancelled) >= 2
        assert all(not server.movable for server in servers.pool.servers)


async def test_the_question_for_a_batch_size_is_asked_elsewhere_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings and pictures begin with it."""

    async def hangs(model: str, timeouts: Timeouts) -> int:
        await asyncio.Event().wait()
        return 0

    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one = servers.fakes["host-0:8001"]
        monkeypatch.setattr(one, "max_batch_size", hangs)
        question = servers.pool.max_batch_size
        asked = [asyncio.ensure_future(question("vision", Timeouts())) for _ in range(2)]  # by turns
        await until(lambda: servers.pool.servers[0].movable)
        stop(one)
        assert await asyncio.gather(*asked) == [16, 16]


class GivenUp:
    """Responses of a server that gives its calls up when a first text has come, before that is read."""

    def __init__(self, server: Upstream) -> None:
        self._server = server
        self.cancelled = False

    async def read(self) -> Tensors | None:
        if self.cancelled:
            return None
        self._server.give_up()
        return llm_outputs("half an")

    def cancel(self) -> None:
        self.cancelled = True

    def finish(self) -> None:
        pass


async def test_a_first_text_that_comes_as_its_call_is_given_up_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was, and the rest of its answer was lost."""
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        server = next(it for it in servers.pool.servers if servers.fakes[it.address] is one)
        responses = GivenUp(server)

        async def stream(request: Request, timeouts: Timeouts) -> GivenUp:
            return responses

        one.stream = stream  # type: ignore[method-assign,assignment]
        two.functions["llm"] = scripted("from the other")
        assert (await servers.client.complete("hi")).text == "from the other"
        assert responses.cancelled
        assert server.moved == 1


@pytest.mark.parametrize("begun", [True, False])
async def test_what_was_begun_stays_and_all_does_where_no_server_is_reached(
    monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """It may be the gateway that stood still: its looks at all of them are late."""
    hanging = Hanging(*["word "] * begun)
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = hanging.llm
        stream = servers.client.stream("hi")
        text = asyncio.ensure_future(stream.answer())
        await until(lambda: asked(one) and bool(stream.text) == begun)
        stop(*[one, two][: 1 if begun else 2])
        await until(lambda: sum(server.hangs for server in servers.pool.servers) == (1 if begun else 2))
        await asyncio.sleep(0.05)  # ten looks
        hanging.over.set()
        assert (await text).text == "word " * begun + "at last"
        assert asked(two) == 0


@pytest.mark.parametrize("error", [Unavailable("no room for the look"), LOST, None])
async def test_a_look_that_fails_at_once_moves_no_call(
    monkeypatch: pytest.MonkeyPatch, error: TrimodalError | None
) -> None:
    """One look that was refused cancelled what a healthy server was about to answer."""
    hanging = Hanging()

    async def models(timeouts: Timeouts) -> list[Model]:
        assert error
        raise error

    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        for fake in (one, two):
            fake.functions |= {"llm": hanging.llm, "embedding": hanging.embedding}
        text = asyncio.ensure_future(servers.client.complete("hi"))
        embedded = [asyncio.ensure_future(servers.client.embed(["hi"])) for _ in range(2)]  # by turns
        await until(lambda: len([request for fake in (one, two) for request in fake.requests]) >= 3)
        if error:
            one.models = models  # type: ignore[method-assign]
        else:
            one.reachable = False
        await until(lambda: any(server.is_reached is False for server in servers.pool.servers))
        await asyncio.sleep(0.05)  # ten looks
        hanging.over.set()
        assert (await text).text == "at last"
        await asyncio.gather(*embedded)
        assert [server.moved for server in servers.pool.servers] == [0, 0]
        assert (one.cancelled, two.cancelled, asked(two)) == ([], [], 0)


async def test_a_client_that_leaves_while_another_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.functions["llm"] = fails(LOST)
        two.functions["llm"] = scripted("word " * 100, step=BOUND)
        stream = servers.client.stream("hi")
        reading = asyncio.ensure_future(stream.answer())
        await until(lambda: two.requests)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await until(lambda: two.cancelled)
