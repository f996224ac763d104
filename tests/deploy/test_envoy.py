"""deploy/envoy/fleet.yaml: Envoy's own messages take it, and it says the same as HAProxy's file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ENVOY = ROOT / "deploy" / "envoy" / "fleet.yaml"
HAPROXY = (ROOT / "deploy" / "haproxy" / "fleet.cfg").read_text()
CONFIG: dict[str, Any] = yaml.safe_load(ENVOY.read_text())
CLUSTERS: dict[str, dict[str, Any]] = {one["name"]: one for one in CONFIG["static_resources"]["clusters"]}


def check(file: Path) -> tuple[int, str]:
    """scripts/ci/envoy: its exit code and what it says. Skips the test where it has nothing to check with."""
    command = [sys.executable, ROOT / "scripts" / "ci" / "envoy", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    if done.returncode == 69:
        pytest.skip(f"no envoy here: {done.stderr[-200:]}")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_envoy_s_own_messages_take_it() -> None:
    code, told = check(ENVOY)
    assert code == 0, told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("hash_balance_factor", "hash_balance_faktor"),
        ("LEAST_REQUEST", "LEAST_CONN"),
        ("retriable_status_codes:", "retriable_codes:"),
        ("max_request_bytes", "max_bytes"),
        ("slow_start_window: 20s", "slow_start_window: soon"),
    ],
)
def test_a_mistake_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    """Or the test above could not fail."""
    text = ENVOY.read_text()
    assert right in text
    (tmp_path / "fleet.yaml").write_text(text.replace(right, wrong))
    code, told = check(tmp_path / "fleet.yaml")
    assert code == 1
    assert wrong.rpartition(" ")[2].strip(":") in told


def test_it_has_no_merge_keys() -> None:
    """Envoy's reader of YAML knows aliases; not every version of it knows `<<`."""
    assert "<<" not in ENVOY.read_text()


def routes() -> Iterator[dict[str, Any]]:
    for listener in CONFIG["static_resources"]["listeners"]:
        (filter_,) = listener["filter_chains"][0]["filters"]
        for host in filter_["typed_config"]["route_config"]["virtual_hosts"]:
            yield from host["routes"]


def test_every_route_has_a_cluster_and_every_cluster_a_route() -> None:
    named = {route["route"]["cluster"] for route in routes() if "route" in route}
    assert named == set(CLUSTERS)
    for name, cluster in CLUSTERS.items():
        assert cluster["load_assignment"]["cluster_name"] == name


def test_a_hashing_cluster_is_asked_by_a_header_and_others_are_not() -> None:
    for route in routes():
        if "route" not in route:
            continue
        hashed = CLUSTERS[route["route"]["cluster"]]["lb_policy"] == "RING_HASH"
        assert hashed == bool(route["route"].get("hash_policy"))
        if hashed:
            (policy,) = route["route"]["hash_policy"]
            asked = [one["name"] for one in route["match"]["headers"]]
            assert asked == [policy["header"]["header_name"]]


def test_both_balancers_have_the_same_servers_ports_and_limits() -> None:
    for cluster, backend in (
        ("grpc_least", "grpc_least"),
        ("http_least", "http_least"),
        ("gateways", "gateways"),
    ):
        (group,) = CLUSTERS[cluster]["load_assignment"]["endpoints"]
        ours = [one["endpoint"]["address"]["socket_address"] for one in group["lb_endpoints"]]
        body = re.split(r"^backend ", HAPROXY.partition(f"\nbackend {backend}\n")[2], flags=re.M)[0]
        assert [f"{one['address']}:{one['port_value']}" for one in ours] == re.findall(r'_\d-(\S+?)}"', body)
    listening = {
        one["name"]: one["address"]["socket_address"] for one in CONFIG["static_resources"]["listeners"]
    }
    assert {name: one["port_value"] for name, one in listening.items()} == {
        "grpc": 8011, "http": 8010, "gateway": 8080,
    }  # fmt: skip
    assert {one["address"] for one in listening.values()} == {"127.0.0.1"}, "it asks for no key"
    assert CONFIG["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
    factors = {int(text) for text in re.findall(r"hash-balance-factor (\d+)", HAPROXY)}
    assert {factor(name) for name in CLUSTERS if name.endswith("_by_prefix")} == factors
    assert not any(factor(name) for name in CLUSTERS if name.endswith("_by_session"))


def factor(cluster: str) -> int | None:
    hashing = CLUSTERS[cluster]["common_lb_config"]["consistent_hashing_lb_config"]
    return hashing.get("hash_balance_factor")


def test_probes_ask_the_health_page() -> None:
    for name, cluster in CLUSTERS.items():
        (probe,) = cluster["health_checks"]
        assert probe["http_health_check"]["path"] == "/ready"
        for one in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]:
            port = one["endpoint"].get("health_check_config", {}).get("port_value")
            assert port == (None if name.startswith("gateways") else 8003), name


def test_only_what_clients_need_is_let_through() -> None:
    """The paths of HAProxy's file; nothing that steers the server."""
    patterns = [route["match"].get("safe_regex", {}).get("regex") for route in routes()]
    found = [re.compile(pattern) for pattern in patterns if pattern]

    def through(path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in found)

    infer, server = "/v2/models/speech/infer", "/inference.GRPCInferenceService/"
    told = ("/v2", "/v2/health/ready", "/v2/models/llm", "/v2/models/llm/versions/1/ready", infer)
    for path in (*told, "/v2/models/llm/generate_stream", f"{server}ModelInfer", f"{server}ModelStreamInfer"):
        assert through(path), path
    for path in (
        "/v2/repository/index", "/v2/repository/models/llm/unload", "/v2/models/llm/config", "/v2/logging",
        "/v2/systemsharedmemory/region/a/register", "/v2/models/../repository/index", "/metrics",
        "/inference.GRPCInferenceService/RepositoryModelUnload", "/inferenceXGRPCInferenceService/ModelInfer",
    ):  # fmt: skip
        assert not through(path), path
