"""Several servers as one: who is asked, who is asked again, and who stays where it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.doubles.waiting import until
from tests.gateway.conftest import fails, fake_triton, vectors
from trimodal.client.client import Client
from trimodal.client.errors import (
    ConnectionLost,
    ProtocolError,
    Timeout,
    TransportError,
    from_message,
    from_status,
)
from trimodal.client.transports.base import Request, Tensors, Timeouts
from trimodal.client.transports.fake import FakeTransport, llm_outputs, scripted
from trimodal.client.transports.probes import PROBES
from trimodal.client.values import Model
from trimodal.errors import (
    InternalError,
    InvalidArgument,
    ModelNotFound,
    RequestError,
    TrimodalError,
    Unavailable,
)
from trimodal.gateway.upstreams import pool
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.gateway.upstreams.routes import set_route
from trimodal.gateway.upstreams.server import Upstream
from trimodal.llm.request.outputs import Delta, columns

BOUND = 20.0


class Servers:
    """Fakes by address, and the pool over them."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *fakes: FakeTransport,
        file: Path | None = None,
        routes: Path | None = None,
    ) -> None:
        monkeypatch.setattr(pool, "LOOK_S", 0.005)
        self.fakes = {f"host-{number}:8001": fake for number, fake in enumerate(fakes)}
        self.pool = Upstreams(file or list(self.fakes), self.fakes.__getitem__, routes)
        self.client = Client(transport=self.pool, timeouts=Timeouts(silence=10))

    async def __aenter__(self) -> Servers:
        self.pool.start(Timeouts(connect=5))
        await self.pool.looked()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        assert [server.running for server in self.pool.servers] == [0] * len(self.pool.servers)

    def first_of(self, prompt: str) -> tuple[FakeTransport, FakeTransport]:
        """The fake that a prompt belongs to, and the other one."""
        order = self.pool._order("llm", prompt.encode())
        one, two = (self.fakes[server.address] for server in order)
        return one, two


def asked(fake: FakeTransport) -> int:
    return sum(request.model == "llm" for request in fake.requests)


LOST = ConnectionLost("the server at host went away")


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


async def test_a_server_that_is_busy_with_one_run_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        busy, other = servers.pool.servers
        busy._late.add(("embedding", "1"))
        for _ in range(4):
            await servers.client.embed(["hi"])
        asked_for = [
            sum(one.name == "embedding" for one in servers.fakes[server.address].requests)
            for server in (busy, other)
        ]
        assert asked_for == [0, 4]
        other.draining = True
        await servers.client.embed(["hi"])


async def test_a_busy_server_is_asked_where_the_other_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        busy, other = servers.pool.servers
        busy._late |= {("embedding", "1"), ("llm", "1")}
        fakes = [servers.fakes[server.address] for server in (busy, other)]
        fakes[0].functions["llm"] = scripted("from the busy one")
        fakes[1].functions["llm"] = fails(Unavailable("the queue is full", 2.0))
        assert (await servers.client.complete("hi")).text == "from the busy one"
        assert [asked(fake) for fake in fakes] == [1, 1]
        fakes[1].reachable = False
        await servers.client.embed(["hi"])


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


async def test_the_same_beginning_goes_to_the_same_server_while_that_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holding = asyncio.Event()

    async def held(request: Request) -> AsyncIterator[Tensors]:
        await holding.wait()
        yield llm_outputs("ok", "stop")

    async with Servers(monkeypatch, fake_triton(llm=held), fake_triton(llm=held)) as servers:
        one, two = servers.first_of("hi")
        servers.pool.kept = servers.pool.passed_on = 0
        answers = [asyncio.ensure_future(servers.client.complete("hi")) for _ in range(12)]
        await until(lambda: asked(one) + asked(two) == 12)
        holding.set()
        await asyncio.gather(*answers)
        # 1.25 times the mean: 8 of 12.
        assert (asked(one), asked(two)) == (8, 4)
        assert (servers.pool.kept, servers.pool.passed_on) == (8, 4)


async def test_what_has_no_beginning_goes_to_who_has_less(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        for _ in range(10):
            await servers.client.embed(["hi"])
        assert [len(fake.requests) for fake in servers.fakes.values()] == [5, 5]


async def test_a_model_that_only_one_server_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, FakeTransport(embedding=vectors), fake_triton()) as servers:
        for number in range(8):
            await servers.client.complete(f"question {number}")
        assert servers.pool.state == dict.fromkeys(
            ("assistant", "embedding", "llm", "speech", "vision"), True
        )
        assert [model.name for model in await servers.client.models()] == list(servers.pool.state)


@pytest.mark.parametrize(
    ("away", "told"),
    [
        ("dead", "the model's process is not healthy"),
        ("restarting", "no model server takes requests now"),
        ("drained", "no model server takes requests now"),
    ],
)
async def test_a_model_whose_only_server_is_away_is_not_asked_of_another(
    monkeypatch: pytest.MonkeyPatch, away: str, told: str
) -> None:
    """Clients were told 404, which no one tries again."""
    other, own = FakeTransport(llm=scripted("hi")), FakeTransport(embedding=vectors)
    async with Servers(monkeypatch, other, own) as servers:
        if away == "dead":

            def dies(request: Request) -> Tensors:
                raise Unavailable("the model's process is not healthy: it is loaded again")

            own.functions["embedding"] = dies
        own.reachable = away != "restarting"
        servers.pool.servers[1].draining = away == "drained"
        for _ in range(3):  # by turns
            with pytest.raises(Unavailable, match=told):
                await servers.pool.infer(Request("embedding", {}), Timeouts())
        with pytest.raises(ModelNotFound):
            await servers.pool.infer(Request("nobody's", {}), Timeouts())
        assert "embedding" not in {request.name for request in other.requests}


@pytest.mark.parametrize("drained", [True, False])
async def test_a_version_whose_only_server_is_away_is_not_asked_of_another(
    monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    def lacks(request: Request) -> Tensors:
        raise ModelNotFound("the server has no model 'embedding' version 2, only 1")

    older = FakeTransport(embedding=lacks)
    newer = FakeTransport(embedding=vectors, versions={"embedding": ("2",)})
    async with Servers(monkeypatch, older, newer) as servers:
        newer.reachable, servers.pool.servers[1].draining = drained, drained
        await until(lambda: servers.pool.servers[1].is_reached is drained)
        with pytest.raises(Unavailable, match="no model server takes requests now"):
            await servers.pool.infer(Request("embedding@2", {}), Timeouts())


async def test_a_model_that_one_server_has_loaded_since_the_last_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = FakeTransport(llm=scripted("hi")), FakeTransport(llm=scripted("hi"))
    servers = Servers(monkeypatch, one, two)
    monkeypatch.setattr(pool, "LOOK_S", BOUND)
    async with servers:
        two.functions["embedding"] = vectors
        for _ in range(2):  # by turns
            await servers.client.embed(["hi"])

        def full(request: Request) -> Tensors:
            raise Unavailable("the queue is full")

        two.functions["embedding"] = full
        for _ in range(2):
            with pytest.raises(Unavailable, match="the queue is full"):
                await servers.client.embed(["hi"])


async def test_a_server_that_hangs_holds_no_list_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did for as long as a model may be silent."""
    asked: list[tuple[int, float | None]] = []

    def hangs(number: int) -> Any:
        async def models(timeouts: Timeouts) -> list[Model]:
            asked.append((number, timeouts.total))
            raise Timeout("it did not finish before the deadline")

        return models

    servers = Servers(monkeypatch, fake_triton(), fake_triton())
    monkeypatch.setattr(pool, "LOOK_S", BOUND)
    async with servers:
        one, two = servers.fakes.values()
        monkeypatch.setattr(one, "models", hangs(1))
        assert await servers.client.models() == await two.models(Timeouts())
        assert asked == [(1, Timeouts.connect)]
        servers.pool.servers[0].is_reached = False
        assert await servers.client.models() == await two.models(Timeouts())
        assert len(asked) == 1, "it is known to hang"
        servers.pool.servers[1].is_reached = False
        monkeypatch.setattr(two, "models", hangs(2))
        with pytest.raises(Unavailable, match="no model server takes requests now"):
            await servers.client.models()
        assert asked[1:] == [(1, Timeouts.connect), (2, Timeouts.connect)], "a look may be old"


async def test_a_server_that_comes_back_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        one, two = servers.first_of("hi")
        one.reachable = False
        await servers.client.complete("hi")
        assert asked(two) == 1
        one.reachable = True
        await until(lambda: all(server.models["llm"] for server in servers.pool.servers))
        await servers.client.complete("hi")
        assert asked(one) == 1


async def test_speech_stays_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = np.zeros(1600, np.float32)
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        streams = [servers.client.listen() for _ in range(6)]
        for _ in range(5):
            for stream in streams:
                await stream.send(chunk)
        assert [server.running for server in servers.pool.servers] == [3, 3]
        assert [len(fake.functions["speech"].streams) for fake in servers.fakes.values()] == [3, 3]
        for stream in streams[:4]:
            await stream.end()
        for stream in streams[4:]:
            await stream.aclose()  # left without its last words
        assert not any(fake.functions["speech"].streams for fake in servers.fakes.values())


@pytest.mark.parametrize(
    "error", [Timeout("no answer in time"), ProtocolError("an answer without a text"), None]
)
async def test_speech_whose_beginning_failed_or_was_left_ends_where_it_may_have_begun(
    monkeypatch: pytest.MonkeyPatch, error: TransportError | None
) -> None:
    """Its END went to any server: another one kept the stream until it had been idle for long."""
    starting = asyncio.Event()

    async def begins(request: Request) -> Tensors:
        if request.parameters["sequence_start"]:
            starting.set()
            if error:
                raise error
            await asyncio.sleep(BOUND)
        return {}

    async with Servers(monkeypatch, fake_triton(speech=begins), fake_triton(speech=begins)) as servers:
        for _ in range(4):
            starting.clear()
            async with servers.client.listen() as stream:
                sending = asyncio.ensure_future(stream.send(np.zeros(1600, np.float32)))
                await starting.wait()
                if not error:
                    sending.cancel()
                with pytest.raises(type(error) if error else asyncio.CancelledError):
                    await sending
        for fake in servers.fakes.values():
            ids = [one.parameters["sequence_id"] for one in fake.requests]
            assert ids
            assert ids[::2] == ids[1::2]


async def test_speech_ends_with_its_server_and_a_new_stream_begins_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunk = np.zeros(1600, np.float32)
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        stream = servers.client.listen()
        await stream.send(chunk)
        (one,) = [fake for fake in servers.fakes.values() if fake.requests]
        one.reachable = False
        with pytest.raises(TransportError):
            await stream.send(chunk)
        for _ in range(3):
            async with servers.client.listen() as other:
                await other.send(chunk)
                await other.end()


async def test_speech_whose_version_was_retired_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, missing = np.zeros(1600, np.float32), ModelNotFound("the server has no model 'speech' version 1")
    fake = fake_triton()
    speech = fake.functions["speech"]

    def retired(request: Request) -> Tensors:
        raise missing

    async with Servers(monkeypatch, fake) as servers:
        stream = servers.client.listen()
        await stream.send(chunk)
        fake.functions["speech"] = retired
        with pytest.raises(ModelNotFound, match="version 1"):
            await stream.send(chunk)
        assert (servers.pool._speech, servers.pool.servers[0].running) == ({}, 0)
        fake.functions["speech"] = speech
        with pytest.raises(InvalidArgument, match="the stream has failed: open another one"):
            await stream.send(chunk)


async def test_a_file_drains_adds_and_removes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "upstreams.toml"

    def write(*lines: str) -> None:
        file.write_text("".join(f"[[upstream]]\n{line}\n" for line in lines))

    first, second = 'address = "host-0:8001"', 'address = "host-1:8001"'
    write(first)
    async with Servers(monkeypatch, fake_triton(), fake_triton(), file=file) as servers:
        one, two = servers.fakes.values()
        one.functions["llm"] = scripted("word " * 20, step=0.02)
        running = asyncio.ensure_future(servers.client.complete("hi"))
        await until(lambda: one.requests)
        write(f"{first}\ndrain = true", second)
        await until(lambda: [server.draining for server in servers.pool.servers] == [True, False])
        await until(lambda: servers.pool.state["llm"])
        for number in range(5):
            await servers.client.complete(f"question {number}")
        assert (asked(one), asked(two)) == (1, 5)
        write(second)
        await until(lambda: [len(servers.pool._servers), len(servers.pool._leaving)] == [1, 1])
        assert not one.closed, "a request still runs there"
        assert (await running).text == "word " * 20
        await until(lambda: one.closed)
        write(f"{second}\ndrain = true")
        await until(lambda: servers.pool.state["llm"] is False)
        with pytest.raises(Unavailable):
            await servers.client.complete("hi")
        write("address = 7")
        await asyncio.sleep(0.02)
        write(second)
        await until(lambda: servers.pool.state["llm"])


async def test_a_look_that_fails_is_told_and_not_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No death was noticed any more, nor was the file read again."""
    file, row = tmp_path / "upstreams.toml", '[[upstream]]\naddress = "host-0:8001"\n'
    file.write_text(row)
    async with Servers(monkeypatch, fake_triton(), file=file) as servers:
        file.write_text(f'{row}[[upstream]]\naddress = "host-1:8001"\n')  # no fake: connecting to it raises
        await until(lambda: "a look at the servers failed" in caplog.text)
        assert "KeyError: 'host-1:8001'" in caplog.text
        servers.fakes["host-0:8001"].reachable = False
        await until(lambda: not servers.pool.state["llm"])
        file.write_text(f"{row}drain = true\n")
        await until(lambda: servers.pool.servers[0].draining)


async def test_a_look_that_always_fails_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It filled the log with a traceback each half second."""
    looks = 0

    async def look(*_: object) -> None:
        nonlocal looks
        looks += 1
        raise ZeroDivisionError

    async with Servers(monkeypatch, fake_triton()) as servers:
        monkeypatch.setattr(servers.pool, "_look", look)
        await until(lambda: looks > 5)
    assert caplog.text.count("a look at the servers failed") == 1


@pytest.mark.parametrize("call", ["stream", "infer", "max_batch_size"])
async def test_a_server_that_has_left_is_not_asked_for_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    """Its closed client refused what came, which the gateway told the caller as a fault of the request."""
    file = tmp_path / "upstreams.toml"
    one, two, three = (f'[[upstream]]\naddress = "host-{number}:8001"\n' for number in range(3))
    file.write_text(one + two)
    failing, asked_first = asyncio.Event(), asyncio.Event()

    async def fail(*_: object) -> Tensors:
        asked_first.set()
        await failing.wait()
        raise LOST

    async def refuse(*_: object) -> Tensors:
        raise InvalidArgument("the client is closed: open another one")

    async with Servers(monkeypatch, *(fake_triton() for _ in range(3)), file=file) as servers:
        first, second, _ = servers.fakes.values()
        for fake, does in ((first, fail), (second, refuse)):
            monkeypatch.setattr(fake, call, does)
        order = [*servers.pool._servers.values()]
        monkeypatch.setattr(servers.pool, "_order", lambda *_: order)
        asked: Any = "llm" if call == "max_batch_size" else Request("llm", {})
        running = asyncio.ensure_future(getattr(servers.pool, call)(asked, Timeouts()))
        await asked_first.wait()
        file.write_text(three)
        await until(lambda: second.closed)
        assert not first.closed, "a request still runs there"
        failing.set()
        with pytest.raises(ConnectionLost):
            await running


async def test_a_server_that_is_named_again_while_its_requests_run_is_the_one_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was there twice, as were its series in /metrics, and its requests were no load of it."""
    file = tmp_path / "upstreams.toml"
    one, two = ('[[upstream]]\naddress = "host-0:8001"\n', '[[upstream]]\naddress = "host-1:8001"\n')
    file.write_text(one)
    slow = scripted("word " * 20, step=0.02)
    async with Servers(monkeypatch, fake_triton(llm=slow), fake_triton(), file=file) as servers:
        running = asyncio.ensure_future(servers.client.complete("hi"))
        await until(lambda: asked(servers.fakes["host-0:8001"]))
        for text, addresses in ((two, ["host-1:8001"]), (one + two, ["host-1:8001", "host-0:8001"])):
            file.write_text(text)
            await until(lambda addresses=addresses: list(servers.pool._servers) == addresses)
        known = [(one.address, one.running) for one in servers.pool.servers]
        assert known == [("host-1:8001", 0), ("host-0:8001", 1)]
        assert (await running).text == "word " * 20


@pytest.mark.parametrize(
    ("shares", "silent", "is_ready"),
    [
        ({"1": 95, "2": 5}, "2", True),  # a canary that hangs takes nobody else's server away
        ({"1": 95, "2": 5}, "1", False),
        ({"1": 100}, "2", True),
        ({"1": 100}, "1", False),
        ({"1": 50, "2": 50}, "2", False),
        ({}, "1", True),  # without a route the highest version has all
        ({}, "2", False),
    ],
)
async def test_a_model_is_ready_while_the_versions_answer_that_get_its_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shares: dict[str, float], silent: str, is_ready: bool
) -> None:
    triton = FakeTransport(llm=scripted("a"), assistant=scripted("a"), versions={"llm": ("1", "2")})

    async def ready(model: str, timeouts: Timeouts) -> bool:
        return model != f"llm@{silent}"

    monkeypatch.setattr(triton, "ready", ready)
    routes = tmp_path / "routes.toml"
    if shares:
        set_route(routes, "llm", shares)
    async with Servers(monkeypatch, triton, routes=routes) as servers:
        assert servers.pool.state == {"assistant": is_ready, "llm": is_ready}, "by what it needs"
        assert servers.pool.versions == {"llm": {"1": silent != "1", "2": silent != "2"}}


async def test_the_assistant_is_told_the_versions_to_ask_and_they_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    versions = {"llm": ("1", "2"), "vision": ("1", "2")}
    triton = fake_triton()
    triton._versions = versions
    routes = tmp_path / "routes.toml"
    set_route(routes, "llm", {"1": 50, "2": 50})
    set_route(routes, "vision", {"1": 100})
    async with Servers(monkeypatch, triton, routes=routes) as servers:
        for number in range(20):
            tenant = f"tenant-{number}"
            await servers.client.complete("hi", tenant=tenant)
            async for _ in servers.client.ask("hi", tenant=tenant, image=b"picture" if number else None):
                pass
        await servers.client.probe(PROBES["llm"])  # what the gateway asks for itself is not counted
        llm = [one for one in triton.requests if one.name == "llm" and "probe" not in one.parameters]
        asked = [request for request in triton.requests if request.name == "assistant"]
        told = [json.loads(str(request.parameters["versions"])) for request in asked]
        assert [f"llm@{one['llm']}" for one in told] == [request.model for request in llm], "as its tenant's"
        assert {request.model for request in llm} == {"llm@1", "llm@2"}
        assert [one.get("vision") for one in told] == [None, *["1"] * 19], "only what it asks"
        assert servers.pool.routed["vision", "1"] == 19
        assert sum(servers.pool.routed["llm", version] for version in "12") == 40
        set_route(routes, "llm", {})
        set_route(routes, "vision", {})
        await until(lambda: not servers.pool.routes)
        async for _ in servers.client.ask("hi"):
            pass
        assert "versions" not in triton.requests[-1].parameters


async def test_the_assistant_is_asked_where_the_version_is_that_it_is_to_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = fake_triton(), fake_triton()
    both[1]._versions = {"llm": ("1", "2")}
    routes = tmp_path / "routes.toml"
    set_route(routes, "llm", {"2": 100})
    async with Servers(monkeypatch, *both, routes=routes) as servers:
        for number in range(8):
            async for _ in servers.client.ask(f"{number} hi"):
                pass
    assert [sum(one.name == "assistant" for one in fake.requests) for fake in both] == [0, 8]


async def test_what_is_asked_inside_triton_is_ready_with_its_highest_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton = FakeTransport(
        speech=scripted("a"), speech_recognize=scripted("a"), versions={"speech_recognize": ("1", "2")}
    )

    async def ready(model: str, timeouts: Timeouts) -> bool:
        return model != "speech_recognize@2"

    monkeypatch.setattr(triton, "ready", ready)
    routes = tmp_path / "routes.toml"
    set_route(routes, "speech_recognize", {"1": 100})
    async with Servers(monkeypatch, triton, routes=routes) as servers:
        assert servers.pool.state == {"speech": False, "speech_recognize": True}, "speech asks the highest"
