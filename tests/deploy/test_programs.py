"""The programs that read the files of deploy/ take them, and find a mistake in them."""

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

CI = ROOT / "scripts" / "ci"
KEYS = "TRIMODAL_PROXY_KEYS"
PICKER = next(one["data"] for one in of_kind("ConfigMap") if "haproxy.cfg" in one["data"])
SCRAPE: dict[str, Any] = yaml.safe_load((DEPLOY / "keda" / "scrape.yml").read_text())
for _job in SCRAPE["scrape_configs"]:
    del _job["kubernetes_sd_configs"]  # Debian's promtool is built without Kubernetes
PROMTOOL = "promtool"
# Name → its program, its text, and mistakes: what is right, what is written instead.
FILES: dict[str, tuple[list[Any], str, list[tuple[str, str]]]] = {
    "docker-compose.yml": (
        [sys.executable, CI / "compose"],
        (ROOT / "docker-compose.yml").read_text(),
        [("shm_size: 2gb", "shmsize: 2gb"), ("redis: { condition", "rediss: { condition")],
    ),
    "envoy.yaml": (
        [sys.executable, CI / "envoy"],
        (DEPLOY / "envoy" / "fleet.yaml").read_text(),
        [
            ("hash_balance_factor", "hash_balance_faktor"),
            ("LEAST_REQUEST", "LEAST_CONN"),
            ("retriable_status_codes:", "retriable_codes:"),
            ("max_request_bytes", "max_bytes"),
            ("slow_start_window: 20s", "slow_start_window: soon"),
        ],
    ),
    "haproxy.cfg": (
        [CI / "haproxy", "-c", "-f"],
        (DEPLOY / "haproxy" / "haproxy.cfg").read_text(),
        [("timeout client", "timeout clients")],
    ),
    "fleet.cfg": (
        [CI / "haproxy", "-c", "-f"],
        (DEPLOY / "haproxy" / "fleet.cfg").read_text(),
        [("default_backend http_least", "default_backend http_most")],
    ),
    "picker.cfg": (
        [CI / "haproxy", "-c", "-f"],
        PICKER["haproxy.cfg"],
        [("use_backend metrics", "use_backend metric")],
    ),
    "scrape.yml": (
        [PROMTOOL, "check", "config", "--syntax-only"],
        yaml.safe_dump(SCRAPE),
        [("action: keep", "action: keeps")],
    ),
}
MISTAKES = [(name, right, wrong) for name, (_, _, found) in FILES.items() for right, wrong in found]


def read(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and output of the file's program. Skips the test where it is not there and cannot be had."""
    (folder / name).write_text(text)
    (folder / "keys").write_text("0" * 64 + "\n")
    monkeypatch.setenv(KEYS, str(folder / "keys"))
    program, *arguments = FILES[name][0]
    if program == PROMTOOL:
        program = promtool()
    command = [program, *arguments, folder / name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    if done.returncode == 69:  # of the scripts: a service that is needed is not there
        pytest.skip(f"nothing here reads it: {done.stderr.strip()[-200:]}")
    return done.returncode, done.stdout + done.stderr


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
    code, told = read(name, FILES[name][1], tmp_path, monkeypatch)
    assert code == 0, told
    if name == "docker-compose.yml":
        services = yaml.safe_load(FILES[name][1])["services"].values()
        profiles = {profile for one in services for profile in one["profiles"]}
        assert {line.split(": ")[0] for line in told.splitlines()} == profiles


@pytest.mark.slow
@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_a_program_finds_a_mistake(
    name: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right in FILES[name][1]
    code, told = read(name, FILES[name][1].replace(right, wrong), tmp_path, monkeypatch)
    assert code
    assert wrong.rpartition(" ")[2].strip(":") in told or wrong.split(":")[0] in told


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
    listeners = yaml.safe_load(FILES["envoy.yaml"][1])["static_resources"]["listeners"]
    filters = [one["filter_chains"][0]["filters"][0]["typed_config"] for one in listeners]
    hosts = [host for one in filters for host in one["route_config"]["virtual_hosts"]]
    matches = [route["match"] for host in hosts for route in host["routes"]]
    patterns = [match["safe_regex"]["regex"] for match in matches if "safe_regex" in match]
    assert any(re.fullmatch(pattern, path) for pattern in patterns) == through
