"""Two versions of a model in one server: a share of the tenants goes to the new one, and back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import shutil
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.deploy.expressions import DASHBOARDS
from tests.deploy.objects import ROOT
from tests.e2e import fakes
from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, wait_until
from tests.e2e.gateway.test_openai import gateway
from trimodal.cli.app import app
from trimodal.client import Client, ModelNotFound, Timeouts, Unavailable
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.gateway.upstreams.routes import set_route, version_for
from trimodal.server.launch import GRPC_OPERATOR_HEADER
from trimodal.server.ports import choose
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e
Totals = dict[tuple[str, ...], float]


def counted(server: TritonServer) -> dict[str, int]:
    """Version of the llm → requests that it ended."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=BOUND) as page:
        found = re.findall(r"^trimodal_llm_requests_total\{(.*)\} (\d+)$", page.read().decode(), re.M)
    totals: Counter[str] = Counter()
    for labels, value in found:
        totals[re.findall(r'version="(\d+)"', labels)[0]] += int(value)
    return dict(totals)


def two_versions(repository: Path) -> Path:
    """A repository with the llm as two versions, and the assistant that only reads."""
    shutil.copytree(MODEL_REPOSITORY / "assistant", repository / "assistant")
    file = repository / "assistant" / "config.pbtxt"
    file.write_text(re.sub(r'(string_value: )"(?:speech|vision)"', r'\1""', file.read_text()))
    shutil.copytree(MODEL_REPOSITORY / "llm", repository / "llm", ignore=lambda folder, names: {
        name for name in names if (Path(folder) / name).is_dir() and (Path(folder) / name).parent.name == "1"
    })  # fmt: skip
    shutil.copytree(repository / "llm" / "1", repository / "llm" / "2")
    file = repository / "llm" / "configs" / "cpu.pbtxt"
    file.write_text(file.read_text() + "version_policy { all {} }\n")
    return repository


async def test_a_canary_and_the_way_back(own_server: Callable[..., TritonServer], tmp_path: Path) -> None:
    repository, routes = two_versions(tmp_path / "models"), tmp_path / "routes.toml"
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
        with pytest.raises(ModelNotFound, match="the server has no model 'llm' version 7, only 1, 2"):
            await client.complete("hi", model="llm@7")
        file = server.repository / "llm/configs/cpu.pbtxt"  # the server's copy
        file.write_text(re.sub(r"\ball\s*\{\s*\}", "specific { versions: 1 }", file.read_text()))
        assert not await asyncio.to_thread(server.api.load, "llm")
        await asyncio.to_thread(wait_until, lambda: server.api.versions()["llm"]["2"] == "UNAVAILABLE")
        with pytest.raises(
            Unavailable, match="not ready: it is being loaded again, or was unloaded"
        ):  # or it is being loaded
            await client.complete("hi", model="llm@2")
    key = ((GRPC_OPERATOR_HEADER, server.operator_key),)
    async with Client(transport=GrpcTransport(server.url, Timeouts(), operator=key)) as client:
        with pytest.raises(ModelNotFound, match="the server has no model 'llm' version 2, only 1"):
            await client.complete("hi", model="llm@2")


@pytest.mark.parametrize("engines", [True, False])
def test_a_version_that_is_put_into_the_repository_is_loaded_from_the_servers_copy(
    own_server: Callable[..., TritonServer], tmp_path: Path, engines: bool
) -> None:
    """With --set, or an engines directory, Triton reads a copy, which knew nothing of what came later."""
    repository = two_versions(tmp_path / "models")
    (repository / "llm" / "2").rename(tmp_path / "2")
    (tmp_path / "engines").mkdir()
    place = tmp_path / "engines" if engines else None
    server = own_server(("llm",), {"llm": fakes.LLM}, repository=repository, engines=place)
    assert server.repository != repository
    assert server.api.versions()["llm"] == {"1": "READY"}
    ports = (server.http_url.rpartition(":")[2], server.health_url.rpartition(":")[2])

    def reload() -> str:
        command = ["reload", "llm", "--http-port", ports[0], "--health-port", ports[1]]
        return CliRunner().invoke(app, command, env={"TRIMODAL_OPERATOR_KEY": server.operator_key}).output

    def loads() -> int:
        return server.log_path.read_text().count("TRITONBACKEND_ModelInstanceInitialize: llm_")

    # The first load wrote the model's byte code beside it.
    assert reload().endswith("what had changed was loaded again, nothing else\n")
    before = loads()
    assert reload().endswith("what had changed was loaded again, nothing else\n")
    # What lies beside engines is made anew, so that an older artefact that is put back is loaded, too.
    assert loads() == before + engines
    (tmp_path / "2").rename(repository / "llm" / "2")
    assert reload().startswith("llm is as its files say")
    wait_until(lambda: server.api.versions()["llm"] == {"1": "READY", "2": "READY"}, "both versions")
    file = repository / "llm" / "configs" / "cpu.pbtxt"
    file.write_text(file.read_text().replace("count: 1", "count: 2"))
    assert "llm: instance_group makes 2 instances, but one process keeps" in reload()


@contextlib.contextmanager
def prometheus(folder: Path, server: TritonServer, gateway: str, key: str) -> Iterator[Callable[..., Totals]]:
    """Scrapes a server and its gateway each second; what is yielded asks a query, and sums by labels."""
    found = subprocess.run([ROOT / "scripts/ci/promtool", "prometheus"], capture_output=True, text=True)
    if found.returncode == 69:
        pytest.skip(f"no prometheus here: {found.stderr.strip()[-200:]}")
    (folder / "key").write_text(key)
    jobs = [{"job_name": "trimodal", "static_configs": [{"targets": [server.metrics_url]}]},
            {"job_name": "trimodal-gateway", "static_configs": [{"targets": [gateway]}],
             "authorization": {"credentials_file": str(folder / "key")}}]  # fmt: skip
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    (port,) = choose("127.0.0.1", {"--port": 0}).values()
    address = f"127.0.0.1:{port}"
    command = [found.stdout.strip(), f"--config.file={folder / 'prometheus.yml'}",
               f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(query: str, *by: str) -> Totals:
        try:
            answer = httpx.get(f"http://{address}/api/v1/query", params={"query": query}, timeout=BOUND)
        except httpx.TransportError:
            return {}
        totals: Totals = Counter()
        for one in answer.raise_for_status().json()["data"]["result"]:
            totals[tuple(one["metric"][label] for label in by)] += float(one["value"][1])
        return totals

    try:
        yield ask
    finally:
        process.kill()
        process.wait()


def panels() -> dict[str, str]:
    """Title → query of every panel that tells versions apart, as Grafana sends it."""
    every = [panel for file in DASHBOARDS for panel in json.loads(file.read_text())["panels"]]
    queries = {panel["title"]: panel["targets"][0] for panel in every}
    filled = {"$instance": ".*", "$__rate_interval": "5m"}
    return {
        title: functools.reduce(lambda text, name: text.replace(name, filled[name]), filled, one["expr"])
        for title, one in queries.items()
        if "{{version}}" in one["legendFormat"]
    }


@pytest.mark.slow
def test_a_canary_in_the_dashboards_own_queries(
    own_server: Callable[..., TritonServer], tmp_path: Path
) -> None:
    """95 to 5 by key through a gateway, the assistant's questions too, and the way back."""
    repository, routes = two_versions(tmp_path / "models"), tmp_path / "routes.toml"
    file, shares = tmp_path / "keys.toml", {"1": 95.0, "2": 5.0}
    operator = add_key(file, Key(name="operator", operator=True))
    keys = [Key(name=f"team-{number}") for number in range(40)]
    secrets = [add_key(file, key) for key in keys]
    gets = Counter(version_for(shares, "llm", key.tenant.encode()) for key in keys)
    assert 1 <= gets["2"] <= 5, "the names are chosen so"
    set_route(routes, "llm", shares)
    server = own_server(("llm", "assistant"), {"llm": fakes.LLM}, repository=repository)
    with (
        gateway(server.grpc_url, keys=file, routes=routes) as url,
        prometheus(tmp_path, server, url.removeprefix("http://"), operator) as ask,
        httpx.Client(base_url=url, timeout=BOUND) as http,
    ):

        def chat(key: str, model: str) -> None:
            body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
            answer = http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
            assert answer.json()["usage"]["completion_tokens"] == 3, answer.text

        def asked(metric: str) -> Callable[[], Totals]:
            return lambda: ask(f"sum by (version) ({metric})", "version")

        # A rate misses what a series begins with: each version has answered before the canary does.
        for version in "12":
            chat(operator, f"llm@{version}")
        ended, routed = asked("trimodal_llm_requests_total"), asked("trimodal_gateway_routed_total")
        wait_until(lambda: ended() == {("1",): 1, ("2",): 1}, "both versions scraped")
        wait_until(lambda: routed() == {("1",): 0, ("2",): 0}, "both shares scraped")

        def all_ask() -> None:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(chat, secrets * 3, [*["llm"] * 80, *["assistant"] * 40]))

        all_ask()
        want = {(version,): 3.0 * count for version, count in gets.items()}
        wait_until(lambda: routed() == want, "every request is counted for its version")
        wait_until(lambda: ended() == {one: count + 1 for one, count in want.items()}, "and none is lost")
        queries = panels()
        share = gets["2"] / len(keys)
        for title in ("Requests by version, as routes share them out", "Requests by version and outcome"):
            rates = ask(queries.pop(title), "version")
            assert rates["2",] / sum(rates.values()) == pytest.approx(share, rel=0.2), title
        for title, query in queries.items():
            assert set(ask(query, "version")) >= {("1",), ("2",)}, title

        back = ["route", "llm", "--to", "1=100%", "--routes", str(routes)]
        assert CliRunner().invoke(app, back).exit_code == 0
        wait_until(lambda: http.get("/ready").json()["routes"] == {"llm": {"1": 100.0}}, "it goes back")
        all_ask()
        want["1",] += 3 * len(keys)
        wait_until(lambda: routed() == want, "all of it is the old version's")
        wait_until(lambda: ended() == {one: count + 1 for one, count in want.items()}, "and none is lost")
