"""The programs that read the files of deploy/ take them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.objects import DEPLOY, ROOT, of_kind
from tests.doubles.http_server import answering

CI = ROOT / "scripts" / "ci"
PICKER = next(one["data"] for one in of_kind("ConfigMap") if "haproxy.cfg" in one["data"])
SCRAPE: dict[str, Any] = yaml.safe_load((DEPLOY / "keda" / "scrape.yml").read_text())
for _job in SCRAPE["scrape_configs"]:
    del _job["kubernetes_sd_configs"]  # Debian's promtool is built without Kubernetes
ENVOY = (DEPLOY / "envoy" / "fleet.yaml").read_text()
HAPROXY = [CI / "haproxy", "-c", "-f"]
# Name → its program, and its text.
FILES: dict[str, tuple[list[Any], str]] = {
    "docker-compose.yml": ([sys.executable, CI / "compose"], (ROOT / "docker-compose.yml").read_text()),
    "envoy.yaml": ([sys.executable, CI / "envoy"], ENVOY),
    "haproxy.cfg": (HAPROXY, (DEPLOY / "haproxy" / "haproxy.cfg").read_text()),
    "fleet.cfg": (HAPROXY, (DEPLOY / "haproxy" / "fleet.cfg").read_text()),
    "picker.cfg": (HAPROXY, PICKER["haproxy.cfg"]),
    "scrape.yml": (["promtool", "check", "config", "--syntax-only"], yaml.safe_dump(SCRAPE)),
}


def promtool() -> str:
    """That of PATH, or the one that scripts/ci/promtool unpacks. Skips the test where there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cached = Path(os.environ.get("TRIMODAL_CACHE") or Path(home) / "trimodal") / "promtool/usr/bin/promtool"
    if not shutil.which("promtool") and not cached.is_file():
        fetched = subprocess.run([CI / "promtool"], capture_output=True, text=True, timeout=170)
        if fetched.returncode == 69:
            pytest.skip(f"no promtool here: {fetched.stderr.strip()[-200:]}")
    return shutil.which("promtool") or str(cached)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_program_takes_its_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program, *arguments), text = FILES[name]
    (tmp_path / name).write_text(text)
    (tmp_path / "keys").write_text("0" * 64 + "\n")
    monkeypatch.setenv("TRIMODAL_PROXY_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("TRIMODAL_PROXY_DNS", "1")
    command = [promtool() if program == "promtool" else program, *arguments, tmp_path / name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    if done.returncode == 69:  # of the scripts: a service that is needed is not there
        pytest.skip(f"nothing here reads it: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_lives_on_when_a_process_of_it_is_killed_for_memory() -> None:
    """The model alone is loaded again. systemd (252) stops the unit by default, and with it all models."""
    unit = (DEPLOY / "systemd" / "trimodal.service").read_text()
    assert re.findall("^OOMPolicy=(.*)$", unit, re.M) == ["continue"]


def test_the_unit_lets_vllm_s_process_group_and_its_caches_be() -> None:
    """Gloo (PyTorch 2.13) ended with "Address family not supported by protocol"; ProtectHome hides a home."""
    unit = (DEPLOY / "systemd" / "trimodal.service").read_text()
    (families,) = re.findall("^RestrictAddressFamilies=(.*)$", unit, re.M)
    assert "AF_NETLINK" in families.split()
    (cache,) = re.findall("^CacheDirectory=(.*)$", unit, re.M)
    assert f"HOME=/var/cache/{cache}" in re.findall("^Environment=(.*)$", unit, re.M)[0].split()


def test_the_proxy_of_compose_follows_a_server_to_another_address() -> None:
    """HAProxy (2.6) keeps the address that a name had at its start, which became another container's."""
    (variable,) = re.findall(
        r"^ *\.if defined\((\w+)\)\n *default-server resolvers default\n *\.endif$",
        (DEPLOY / "haproxy" / "haproxy.cfg").read_text(),
        re.M,
    )
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert variable in services["proxy"]["environment"]


def test_a_gateways_whole_answer_may_take_an_hour() -> None:
    """It says nothing until it is whole. HAProxy's bound is the backend's, Envoy's the route's."""
    fleet = (DEPLOY / "haproxy" / "fleet.cfg").read_text().partition("\nbackend gateways\n")[2]
    for text in (fleet.partition("\nbackend ")[0], PICKER["haproxy.cfg"]):
        assert re.findall(r"timeout server (\w+)", text) == ["1h"]
    *_, gateway = yaml.safe_load(ENVOY)["static_resources"]["listeners"]
    (routing,) = gateway["filter_chains"][0]["filters"]
    (host,) = routing["typed_config"]["route_config"]["virtual_hosts"]
    bounds = [one["route"].get("idle_timeout") for one in host["routes"] if "route" in one]
    assert bounds == [None, "3600s", "3600s"], "a WebSocket's is the listener's"
    services = of_kind("InferenceService")
    assert {one["spec"]["predictor"]["timeout"] for one in services} == {3600}


@pytest.mark.parametrize(
    ("path", "through"),
    [
        *((path, True) for path in ("/v2", "/v2/health/ready", "/v2/models/llm", "/v2/models/speech/infer")),
        *((f"/v2/models/llm/{end}", True) for end in ("versions/1/ready", "generate_stream")),
        *((f"/inference.GRPCInferenceService/{name}", True) for name in ("ModelInfer", "ModelStreamInfer")),
        *((f"/v2/repository/{end}", False) for end in ("index", "models/llm/unload")),
        *((f"/v2/{end}", False) for end in ("models/llm/config", "logging", "models/../repository/index")),
        ("/v2/systemsharedmemory/region/a/register", False),
        ("/metrics", False),
        ("/inference.GRPCInferenceService/RepositoryModelUnload", False),
        ("/inferenceXGRPCInferenceService/ModelInfer", False),
    ],
)
def test_envoy_lets_through_what_clients_need_alone(path: str, through: bool) -> None:
    """Nothing that steers the server; tests/e2e/security asks HAProxy the same."""
    listeners = yaml.safe_load(ENVOY)["static_resources"]["listeners"]
    filters = [one["filter_chains"][0]["filters"][0]["typed_config"] for one in listeners]
    hosts = [host for one in filters for host in one["route_config"]["virtual_hosts"]]
    matches = [route["match"] for host in hosts for route in host["routes"]]
    patterns = [match["safe_regex"]["regex"] for match in matches if "safe_regex" in match]
    assert any(re.fullmatch(pattern, path) for pattern in patterns) == through


@pytest.mark.parametrize(
    ("host", "page", "ready"),
    [("", "", True), ("0.0.0.0", "", True), ("127.0.0.2", "", False), ("127.0.0.2", "127.0.0.1", True)],
)
def test_the_health_check_asks_where_the_page_listens(host: str, page: str, ready: bool) -> None:
    """A container whose server listens on one address was unhealthy for good."""
    with answering(lambda asked: (200 if asked.path == "/ready" else 404, b"")) as port:
        told = {"TRIMODAL_HOST": host, "TRIMODAL_HEALTH_HOST": page, "TRIMODAL_HEALTH_PORT": str(port)}
        done = subprocess.run([sys.executable, DEPLOY / "docker" / "healthy.py"], env=os.environ | told)
    assert done.returncode == (not ready)
