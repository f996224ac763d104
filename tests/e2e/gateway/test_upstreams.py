"""A gateway in front of two real Tritons: one dies, each is drained and restarted, processes are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import fakes as all_fakes
from tests.e2e.conftest import BOUND, own_processes, unsupervised, wait_until
from tests.e2e.gateway.test_openai import gateway
from trimodal.gateway.upstreams.file import set_drain
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LLM = {**all_fakes.LLM, "fake_answer": "word " * 40, "fake_step_ms": "10", "max_num_seqs": "8"}
Started = Callable[..., TritonServer]


def in_file(file: Path, *servers: TritonServer) -> Path:
    """The servers as a gateway reads them."""
    file.write_text("".join(f'[[upstream]]\naddress = "{server.grpc_url}"\n' for server in servers))
    return file


def gauges(url: str, name: str) -> dict[str, float]:
    """Upstream → value."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=BOUND).text)
    found = [sample for family in families for sample in family.samples]
    return {
        one.labels["upstream"]: one.value for one in found if one.name == f"trimodal_gateway_upstream_{name}"
    }


def new_processes(pattern: str, others: set[int]) -> set[int]:
    """Those that came since `others` were listed."""
    wait_until(lambda: set(own_processes(pattern)) - others, pattern)
    return set(own_processes(pattern)) - others


def ready(url: str) -> tuple[int, dict[str, bool]]:
    answer = httpx.get(f"{url}/ready", timeout=BOUND)
    return answer.status_code, answer.json()["models"]


class Load:
    """Streams, one after the other, a few at once; counts how they ended."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.whole = 0
        self.cut = 0
        self.refused: list[str] = []

    @contextlib.asynccontextmanager
    async def running(self, streams: int) -> AsyncIterator[None]:
        async with httpx.AsyncClient(timeout=BOUND) as client:
            over = asyncio.Event()
            tasks = [asyncio.ensure_future(self._ask(client, over, number)) for number in range(streams)]
            try:
                yield
            finally:
                over.set()
                await asyncio.wait_for(asyncio.gather(*tasks), BOUND)

    async def _ask(self, client: httpx.AsyncClient, over: asyncio.Event, number: int) -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            chat = [{"role": "user", "content": f"question {number} {turn}"}]
            body = {"model": "llm", "messages": chat, "max_tokens": 20, "stream": True}
            async with client.stream("POST", f"{self._url}/v1/chat/completions", json=body) as answer:
                text = (await answer.aread()).decode()
            if answer.status_code != 200 or '"content":"' not in text:
                self.refused.append(text)
            elif "[DONE]" in text:
                self.whole += 1
            else:
                self.cut += 1

    async def more(self, answers: int = 10) -> None:
        """Waits for so many more whole answers."""
        wanted = self.whole + answers
        await asyncio.to_thread(wait_until, lambda: self.whole >= wanted, f"{answers} answers")


async def test_a_server_that_is_killed_costs_what_had_begun_and_nothing_else(
    own_server: Started, tmp_path: Path
) -> None:
    one, two = (own_server(("llm",), changes={"llm": LLM}) for _ in range(2))
    with gateway(upstreams=in_file(tmp_path / "upstreams.toml", one, two)) as url:
        load = Load(url)
        async with load.running(8):
            await load.more()
            one.kill()
            await load.more(20)
        assert load.refused == []
        assert load.cut <= 8, "at most what ran there"
        assert await asyncio.to_thread(ready, url) == (200, {"llm": True})
        found = await asyncio.to_thread(gauges, url, "in_flight")
        assert found == {one.grpc_url: 0, two.grpc_url: 0}


def restart(server: TritonServer, own_server: Started, url: str, file: Path) -> None:
    """Drains a server, stops it and starts another one at its address."""
    address = server.grpc_url
    set_drain(file, address, True)
    wait_until(lambda: gauges(url, "draining")[address] == 1, "the drain")
    wait_until(lambda: gauges(url, "in_flight")[address] == 0, "its last request")
    server.stop()
    own_server(("llm",), changes={"llm": LLM}, grpc_port=int(address.rsplit(":", 1)[1]))
    set_drain(file, address, False)
    wait_until(lambda: gauges(url, "draining")[address] == 0, "its use")
    wait_until(lambda: gauges(url, "ready").get(address) == 1, "its model")


async def test_each_server_is_drained_and_restarted_under_load(own_server: Started, tmp_path: Path) -> None:
    file = tmp_path / "upstreams.toml"
    servers = [own_server(("llm",), changes={"llm": LLM}) for _ in range(2)]
    with gateway(upstreams=in_file(file, *servers)) as url:
        load = Load(url)
        async with load.running(8):
            for server in servers:
                await load.more()
                await asyncio.to_thread(restart, server, own_server, url, file)
                await load.more()
        assert (load.refused, load.cut) == ([], 0)
        found = await asyncio.to_thread(gauges, url, "in_flight")
        assert set(found.values()) == {0}


def test_a_killed_process_makes_the_gateway_unready(own_server: Started, tmp_path: Path) -> None:
    others = set(own_processes())
    server = own_server(("llm", "embedding"), changes={"llm": LLM, "embedding": {"engine": "fake"}})
    with gateway(upstreams=in_file(tmp_path / "upstreams.toml", server)) as url:
        assert ready(url) == (200, {"embedding": True, "llm": True})
        for _ in range(4):  # three are opened anew
            (engine,) = new_processes("engine_core", others)
            others.add(engine)
            os.kill(engine, signal.SIGKILL)
        dead = {"embedding": True, "llm": False}
        wait_until(lambda: ready(url) == (503, dead), "the engine's end to be told")
        unsupervised(server)
        (stub,) = new_processes("backend_stub .*/embedding/1", others)
        os.kill(stub, signal.SIGKILL)
        dead["embedding"] = False
        wait_until(lambda: ready(url) == (503, dead), "the stub's end to be told")
