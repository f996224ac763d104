"""Several versions of a model: which have to answer, and which the assistant is told to ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doubles.waiting import until
from tests.gateway.conftest import fake_triton
from tests.gateway.upstreams.servers import Servers
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.fake import FakeTransport, scripted
from trimodal.client.transports.probes import PROBES
from trimodal.gateway.upstreams.routes import set_route


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
