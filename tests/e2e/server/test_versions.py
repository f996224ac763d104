"""Two versions of a model in one server: a share of the tenants goes to the new one, and back."""

from __future__ import annotations

import asyncio
import re
import shutil
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import fakes
from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, wait_until
from trimodal.client import Client, Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.gateway.upstreams.routes import set_route
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e


def counted(server: TritonServer) -> dict[str, int]:
    """Version of the llm → requests that it ended."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=BOUND) as page:
        found = re.findall(r"^trimodal_llm_requests_total\{(.*)\} (\d+)$", page.read().decode(), re.M)
    totals: Counter[str] = Counter()
    for labels, value in found:
        totals[re.findall(r'version="(\d+)"', labels)[0]] += int(value)
    return dict(totals)


async def test_a_canary_and_the_way_back(own_server: Callable[..., TritonServer], tmp_path: Path) -> None:
    repository, routes = tmp_path / "models", tmp_path / "routes.toml"
    shutil.copytree(MODEL_REPOSITORY / "llm", repository / "llm", ignore=lambda folder, names: {
        name for name in names if (Path(folder) / name).is_dir() and (Path(folder) / name).parent.name == "1"
    })  # fmt: skip
    shutil.copytree(repository / "llm" / "1", repository / "llm" / "2")
    file = repository / "llm" / "configs" / "cpu.pbtxt"
    file.write_text(file.read_text() + "version_policy { all {} }\n")
    set_route(routes, "llm", {"1": 80.0, "2": 20.0})
    server = own_server(("llm",), {"llm": fakes.LLM}, repository=repository)
    assert server.api.instances("llm") == 2
    pool = Upstreams([server.url], lambda address: GrpcTransport(address, Timeouts()), routes)
    pool.start(Timeouts(connect=5))
    async with Client(transport=pool) as client:

        async def ask(number: int) -> str:
            return (await client.complete("hi", max_tokens=3, tenant=f"tenant-{number}")).finish_reason

        for shares in (None, {"1": 100.0}):
            if shares:
                set_route(routes, "llm", shares)
            ends = await asyncio.gather(*(ask(number) for number in range(60)))
            assert set(ends) == {"length"}, "none is lost"
        while pool._routes.contents["llm"] != {"1": 100.0}:  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
        before = pool.routed["llm", "2"]
        assert before > 0
        await asyncio.gather(*(ask(number) for number in range(60)))
        assert pool.routed["llm", "2"] == before
        assert pool.routed["llm", "1"] == 180 - before
        routed = {version: count for (_, version), count in pool.routed.items()}
        await asyncio.to_thread(wait_until, lambda: counted(server) == routed, "the server's own count")
