"""Several servers as one: who is asked first, what a look finds, and a file that says who is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.waiting import until
from tests.gateway.conftest import fails, fake_triton, vectors
from tests.gateway.upstreams.servers import BOUND, LOST, Servers, asked
from trimodal.client.errors import ConnectionLost, Timeout
from trimodal.client.transports.base import Request, Tensors, Timeouts
from trimodal.client.transports.fake import FakeTransport, llm_outputs, scripted
from trimodal.client.values import Model
from trimodal.errors import InvalidArgument, ModelNotFound, Unavailable
from trimodal.gateway.upstreams import pool


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
