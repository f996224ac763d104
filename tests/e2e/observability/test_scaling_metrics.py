"""What autoscalers and the endpoint picker of deploy/ ask for is on a live server, and moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.expressions import scaled_by
from tests.deploy.objects import of_kind, picker_flags
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.haproxy import haproxy
from tests.e2e.observability import load
from trimodal.server import ports
from trimodal.server.process import TritonServer
from trimodal.top.page import fetch

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_every_metric_that_scales_moves(serve: Callable[..., TritonServer], tmp_path: Path) -> None:
    """Gauges are zero again when the load ends, so the page is read all the time."""
    wanted = scaled_by()
    assert len(wanted) > 8
    server = serve(load.MODELS, load.changes(tmp_path))
    url = f"http://{server.metrics_url}/metrics"
    before = fetch(url, timeout=10)
    seen: dict[str, set[float | None]] = {name: set() for name in wanted}

    async def under_load(front: str) -> None:
        running = asyncio.create_task(load.load(server.grpc_url, front, seed=7))
        while not running.done():
            page = await asyncio.to_thread(fetch, url, timeout=10)
            for name in wanted & page.samples.keys():
                seen[name].add(page.total(name))
            await asyncio.sleep(0.02)
        await running

    with gateway(server.grpc_url) as front:
        asyncio.run(under_load(front))
        with pool_proxy(server.metrics_url, front, tmp_path) as pool:
            # As the picker sees it: one port for OpenAI's API and for the metrics of the server.
            asked = {name for name in picker_flags().values() if name.startswith("trimodal_")}
            assert asked <= fetch(f"{pool}/metrics", timeout=10).samples.keys()
            body = {"model": "llm", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
            answer = httpx.post(f"{pool}/v1/chat/completions", json={**body, "stream": True}, timeout=10)
            assert answer.status_code == 200
            assert answer.text.rstrip().endswith("data: [DONE]")
    after = fetch(url, timeout=10)
    for name in wanted:
        values = seen[name] | ({after.total(name)} if after.has(name) else set())
        assert values, f"{name} is not on the page"
        first = before.total(name) or 0.0
        assert values - {first}, f"{name} stands still at {first}"


@contextmanager
def pool_proxy(metrics: str, front: str, folder: Path) -> Iterator[str]:
    """HAProxy as in the pool's pods, with the ports of this machine."""
    (text,) = (one["data"]["haproxy.cfg"] for one in of_kind("ConfigMap") if "haproxy.cfg" in one["data"])
    port = ports.choose("127.0.0.1", {"--port": 0})["--port"]
    for old, new in (
        ("bind :8081", f"bind 127.0.0.1:{port}"),
        ("127.0.0.1:8002", metrics),
        ("127.0.0.1:8080", front.removeprefix("http://")),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "haproxy.cfg").write_text(text)
    with haproxy(folder / "haproxy.cfg", folder / "haproxy.log", {}, lambda: answers(port)):
        yield f"http://127.0.0.1:{port}"


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False
