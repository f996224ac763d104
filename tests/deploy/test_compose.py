"""docker-compose.yml: docker-compose reads every profile; what `scale` starts fits together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
PROFILES = sorted({profile for one in SERVICES.values() for profile in one["profiles"]})
FLEET = (ROOT / "deploy" / "haproxy" / "fleet.cfg").read_text()
SCALE = {name: one for name, one in SERVICES.items() if "scale" in one["profiles"]}
SERVERS = ("serve-1", "serve-2", "serve-3")
GATEWAYS = ("gateway-1", "gateway-2")


def read(file: Path) -> tuple[int, str, str]:
    """scripts/ci/compose: exit code, stdout, stderr. Skips the test where there is no docker-compose."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "ci" / "compose", file],
        capture_output=True,
        text=True,
        timeout=170,
    )
    if done.returncode == 69:
        pytest.skip(f"no docker-compose here: {done.stderr[-200:]}")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_docker_compose_reads_every_profile() -> None:
    code, out, err = read(FILE)
    assert code == 0, err
    told = dict(line.split(": ") for line in out.splitlines())
    assert sorted(told) == PROFILES
    assert set(told["scale"].split(", ")) == set(SCALE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("shm_size: 2gb", "shmsize: 2gb"), ("redis: { condition", "rediss: { condition")],
)
def test_docker_compose_finds_a_mistake(right: str, wrong: str, tmp_path: Path) -> None:
    """Or the test above could not fail."""
    text = FILE.read_text()
    assert right in text
    (tmp_path / "docker-compose.yml").write_text(text.replace(right, wrong))
    code, _, err = read(tmp_path / "docker-compose.yml")
    assert code == 1
    assert re.search("rediss|shmsize", err)


def test_a_profile_starts_all_that_its_services_wait_for() -> None:
    """docker-compose looks at that only when it starts them."""
    for name, service in SERVICES.items():
        for other in service.get("depends_on", {}):
            assert set(service["profiles"]) <= set(SERVICES[other]["profiles"]), (name, other)


def test_scale_starts_three_servers_gateways_balancer_redis_prometheus_and_grafana() -> None:
    assert set(SCALE) == {*SERVERS, *GATEWAYS, "balancer", "redis", "prometheus-fleet", "grafana"}


def test_no_two_of_a_profile_have_one_port() -> None:
    for profile in PROFILES:
        taken = [
            port.split(":")[-2]
            for one in SERVICES.values()
            if profile in one["profiles"]
            for port in one.get("ports", ())
        ]
        assert len(taken) == len(set(taken)), profile


def test_all_ports_are_on_loopback_unless_told() -> None:
    for name in SCALE:
        for port in SCALE[name].get("ports", ()):
            assert re.match(r"\$\{TRIMODAL_\w+:-127\.0\.0\.1\}:", port), (name, port)
    assert not any(SCALE[name]["ports"] for name in (*SERVERS, *GATEWAYS)), "reached through the balancer"


def test_the_balancer_s_file_names_the_services_and_their_ports() -> None:
    named = set(re.findall(r'server (\S+) "\$\{TRIMODAL_FLEET_\w+-([\w-]+):(\d+)\}"', FLEET))
    ports = {"serve": {"8000", "8001", "8003"}, "gateway": {"8080"}}
    assert named == {(name, name, port) for name in (*SERVERS, *GATEWAYS) for port in ports[name[:-2]]}
    for variable in SCALE["balancer"]["environment"]:
        assert f"${{{variable}" in FLEET, variable
    listening = set(re.findall(r"_PORT-(\d+)\}", FLEET))
    assert listening == {"8010", "8011", "8080", "8404"}
    published = {port.split(":")[-1] for port in SCALE["balancer"]["ports"]}
    assert published == listening - {"8404"}
    assert "./deploy/haproxy/fleet.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro" in SCALE["balancer"]["volumes"]


def test_the_drain_reaches_the_balancer_s_socket() -> None:
    drain, balancer = SERVICES["drain"], SCALE["balancer"]
    socket = balancer["environment"]["TRIMODAL_FLEET_SOCKET"]
    assert drain["environment"] == {"TRIMODAL_FLEET_SOCKET": socket}
    folder = next(volume for volume in balancer["volumes"] if volume.endswith(str(Path(socket).parent)))
    assert folder in drain["volumes"]
    assert "./deploy/haproxy/drain:/drain:ro" in drain["volumes"]
    assert drain["user"] == balancer["user"], "the socket is its owner's alone"


def test_all_servers_keep_their_answers_in_one_store() -> None:
    for name in SERVERS:
        told = dict(re.findall(r"--set=llm\.(\w+)=(\S+)", " ".join(SCALE[name]["command"])))
        assert told == {"cache": "exact", "cache_store": "redis://redis:6379/0"}
    assert not SCALE["redis"].get("ports"), "it asks for no password"


def test_the_gateways_know_the_three_servers() -> None:
    file = ROOT / "deploy" / "upstreams" / "upstreams.toml"
    listed = [one["address"] for one in tomllib.loads(file.read_text())["upstream"]]
    assert listed == [f"{name}:8001:8003" for name in SERVERS]
    for name in GATEWAYS:
        assert "./deploy/upstreams:/upstreams:ro" in SCALE[name]["volumes"]
        assert SCALE[name]["environment"]["TRIMODAL_UPSTREAMS"] == "/upstreams/upstreams.toml"
        assert "TRIMODAL_URL" not in SCALE[name]["environment"]


def test_prometheus_scrapes_all_of_them_under_the_names_of_rules_and_dashboards() -> None:
    folder = ROOT / "deploy" / "prometheus"
    fleet, one = (yaml.safe_load((folder / name).read_text()) for name in ("fleet.yml", "prometheus.yml"))
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in fleet["scrape_configs"]}
    assert jobs == {
        "trimodal": [f"{name}:8002" for name in SERVERS],
        "trimodal-gateway": [f"{name}:8080" for name in GATEWAYS],
        "trimodal-balancer": ["balancer:8404"],
    }
    assert {job["job_name"] for job in one["scrape_configs"]} == set(jobs) - {"trimodal-balancer"}
    assert {key: fleet[key] for key in ("global", "rule_files")} == {
        key: one[key] for key in ("global", "rule_files")
    }
    assert (
        "./deploy/prometheus/fleet.yml:/etc/prometheus/prometheus.yml:ro"
        in SCALE["prometheus-fleet"]["volumes"]
    )
    assert SCALE["prometheus-fleet"]["networks"]["default"]["aliases"] == ["prometheus"]
