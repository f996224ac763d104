"""Dockerfile and docker-compose.yml: valid, pinned, as closed as they claim. Nothing is built or started."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimodal.cli.build import RECIPES
from trimodal.gateway.settings import GatewaySettings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
SERVING = ("serve-cpu", "serve-cuda", "serve-tensorrt")


def test_the_compose_file_keeps_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run(
        [*command, ROOT / "docker-compose.yml"], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stdout


def test_the_schema_refuses_a_misspelt_key(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    text = (ROOT / "docker-compose.yml").read_text().replace("shm_size", "shmsize")
    (tmp_path / "docker-compose.yml").write_text(text)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run(
        [*command, tmp_path / "docker-compose.yml"], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 1
    assert "shmsize" in checked.stdout


@pytest.mark.parametrize("profile", ["cpu", "tensorrt", "build-cpu", "build-tensorrt", "gateway"])
def test_a_profile_starts_one_service(profile: str) -> None:
    started = [name for name, service in SERVICES.items() if profile in service["profiles"]]
    assert started == [f"serve-{profile}" if profile in ("cpu", "tensorrt") else profile]
    if profile == "gateway":
        return
    volumes = [text.split(":")[0] for text in SERVICES[started[0]]["volumes"]]
    named = [name for name in volumes if re.fullmatch(r"[a-z-]+", name)]
    assert named
    assert set(named) <= set(COMPOSE["volumes"])


def test_profile_cuda_prepares_its_engines_and_then_serves_them() -> None:
    """From nothing: what `up` starts builds small public checkpoints first."""
    started = {name for name, service in SERVICES.items() if "cuda" in service["profiles"]}
    assert started == {"prepare-cuda", "serve-cuda"}
    assert SERVICES["serve-cuda"]["depends_on"] == {
        "prepare-cuda": {"condition": "service_completed_successfully"}
    }
    assert "restart" not in SERVICES["prepare-cuda"], "it would never complete"
    assert "deploy" not in SERVICES["prepare-cuda"], "it needs no GPU"
    given = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", part) for part in SERVICES["prepare-cuda"]["command"]]
    assert given[:2] == ["build", "all"]
    assert {"--recipe=cuda", "--missing", "--engines=/engines"} <= set(given)
    parts = {f"--{task}={part.source}" for task, part in RECIPES["cuda"].items()}
    assert set(given[5:]) == parts, "the recipe's own, where no variable names another"
    assert 'CMD ["serve", "--verbose", "--set", "llm.python=/opt/vllm/bin/python"]' in stages()["serve-cuda"]
    assert "vllm==0.33.0" in stages()["serve-cuda"]


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root_or_keeps_capabilities(name: str) -> None:
    service = SERVICES[name]
    # Prometheus' image has its data belong to 65534, nobody.
    assert service["user"] == ("65534:65534" if name.startswith("prometheus") else "1000:1000")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")


@pytest.mark.parametrize("name", SERVING)
def test_a_serving_container_can_write_only_where_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    writable = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
    caches = [] if name == "serve-cpu" else [f"cache-{name.removeprefix('serve-')}:/cache"]
    assert writable == caches
    assert [place.split(":")[0] for place in service["tmpfs"]] == ["/tmp"]
    assert service["shm_size"] == "2gb"
    assert all(port.startswith("${TRIMODAL_BIND:-127.0.0.1}:") for port in service["ports"])
    # Docker kills what has not ended by then: the drain must have had its time.
    grace = int(service["stop_grace_period"].removesuffix("s"))
    assert grace > int(service["environment"]["TRIMODAL_DRAIN_TIMEOUT"])
    assert service["healthcheck"]["test"][-1] == "/opt/trimodal/docker/healthy.py"


def test_the_gateway_finds_whichever_server_runs_and_asks_for_keys() -> None:
    gateway = SERVICES["gateway"]
    for name in SERVING:
        assert SERVICES[name]["networks"]["default"]["aliases"] == ["triton"]
    assert gateway["environment"]["TRIMODAL_URL"] == "triton:8001:8003"
    # Read by the command itself: with a host beyond loopback it starts with keys only.
    options = {name: value for name, value in gateway["environment"].items() if name != "TRIMODAL_URL"}
    settings = GatewaySettings(host=options["TRIMODAL_GATEWAY_HOST"], keys=Path(options["TRIMODAL_KEYS"]))
    assert f":{settings.port}:{settings.port}" in gateway["ports"][0]
    assert gateway["ports"][0].startswith("${TRIMODAL_GATEWAY_BIND:-127.0.0.1}:")
    assert gateway["volumes"] == ["${KEYS:-./keys}:/keys"]
    assert gateway["read_only"]
    assert int(gateway["stop_grace_period"].removesuffix("s")) > settings.drain_timeout_s


def test_profile_observability_reads_what_is_deployed_and_nothing_else() -> None:
    started = {name for name, service in SERVICES.items() if "observability" in service["profiles"]}
    assert started == {"prometheus", "grafana"}
    for name in started:
        service = SERVICES[name]
        assert service["read_only"]
        assert not service["image"].endswith(":latest")
        assert ":" in service["image"]
        assert all(port.startswith("${TRIMODAL_BIND:-127.0.0.1}:") for port in service["ports"])
        places = [volume.rsplit(":", 2) for volume in service["volumes"] if volume.endswith(":ro")]
        deployed = [place for place, _, _ in places if place.startswith("./")]
        assert all((ROOT / place).exists() for place in deployed)
        assert set(SERVICES[name]["volumes"][-1].split(":")[:1]) <= set(COMPOSE["volumes"])
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = [target for job in config["scrape_configs"] for target in job["static_configs"][0]["targets"]]
    assert targets == ["triton:8002", "gateway:8080"], "the alias of whichever server runs, and the gateway"
    mounted = [volume.split(":")[-2] for volume in SERVICES["prometheus"]["volumes"][:3]]
    assert config["rule_files"] == [f"{mounted[1]}/*.yml"]
    assert config["scrape_configs"][1]["authorization"]["credentials_file"].startswith(f"{mounted[2]}/")
    dashboards = yaml.safe_load((ROOT / "deploy/grafana/provisioning/dashboards/trimodal.yml").read_text())[
        "providers"
    ][0]["options"]["path"]
    assert f"./deploy/grafana/dashboards:{dashboards}:ro" in SERVICES["grafana"]["volumes"]


def test_gpus_are_reserved_for_what_needs_them_and_can_be_chosen() -> None:
    for name, service in SERVICES.items():
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        on_gpu = name in ("serve-cuda", "serve-tensorrt", "build-tensorrt")
        assert [device["driver"] for device in devices] == (["nvidia"] if on_gpu else [])
        for device in devices:
            assert device["device_ids"] == ["${TRIMODAL_GPU:-all}"]
            assert "count" not in device, "Compose refuses both"


def test_the_build_and_the_server_of_a_profile_share_their_engines() -> None:
    for kind, build in (("cpu", "build-cpu"), ("cuda", "prepare-cuda"), ("tensorrt", "build-tensorrt")):
        assert f"engines-{kind}:/engines" in SERVICES[build]["volumes"]
        assert f"engines-{kind}:/engines:ro" in SERVICES[f"serve-{kind}"]["volumes"]
    for stage in ("base", "cuda"):
        assert "TRIMODAL_ENGINES=/engines" in stages()[stage]


def stages() -> dict[str, str]:
    """Target → its instructions."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return {name: body for name, body in zip(parts[2::3], parts[3::3], strict=True)}


def test_the_image_is_pinned_and_has_the_fixes_of_may_2026() -> None:
    year, month = map(int, re.findall(r"^ARG TRITON=(\d+)\.(\d+)$", DOCKERFILE, re.MULTILINE)[0])
    assert (year, month) >= (26, 5)
    assert "FROM nvcr.io/nvidia/tritonserver:${TRITON}-py3 AS base" in DOCKERFILE
    assert ":latest" not in DOCKERFILE
    assert "tensorrt_llm==1.2.1" in DOCKERFILE


def test_every_target_of_the_compose_file_exists_and_ends_as_user_1000() -> None:
    for service in SERVICES.values():
        if "build" not in service:
            continue  # another project's image
        body = stages()[service["build"]["target"]]
        assert re.findall(r"^USER (\S+)$", body, re.MULTILINE)[-1] == "1000:1000"


def test_libraries_write_their_caches_where_a_serving_container_can() -> None:
    """The user has no home directory, and all but /tmp is read-only."""
    for first, second in (("base", "serve-tensorrt"), ("cuda", "serve-cuda")):
        set_there = dict(re.findall(r"(\w+)=(\S*)", stages()[first] + stages()[second]))
        for name in ("HOME", "XDG_CACHE_HOME", "HF_MODULES_CACHE"):
            assert Path(set_there[name]).is_relative_to("/tmp"), name
        # Compiled at the first use, in minutes: in a volume, not in memory.
        for name in ("TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "CUDA_CACHE_PATH"):
            assert Path(set_there[name]).is_relative_to("/cache"), name
        assert int(set_there["CUDA_CACHE_MAXSIZE"]) == 4 << 30
        # A new volume takes over the owner of the folder that it covers.
        assert re.search(r"install -d -o 1000 -g 1000 .*/cache\b", stages()[first])


def test_nvidia_s_entrypoint_stays_before_ours_so_that_older_drivers_serve() -> None:
    """It puts the forward compatibility libraries in place."""
    entry = "/opt/nvidia/nvidia_entrypoint.sh"
    assert f'ENTRYPOINT ["{entry}", "trimodal"]' in stages()["serve-tensorrt"]
    assert f'ENTRYPOINT ["{entry}"]' in stages()["build-tensorrt"]


def test_the_image_brings_neither_a_toolkit_nor_a_second_tensorrt() -> None:
    body = stages()["serve-tensorrt"]
    assert not re.search(r"apt-get install[^&]*cuda", body)
    assert re.search(r'--no-deps \\\n +"tensorrt-cu13-bindings==', body)
    assert not re.search(r'"tensorrt-cu13==', body)
    compilers = re.findall(r"(nvidia-(?:cuda-)?\w+)==(\S+)", body)
    assert {version for _, version in compilers} == {"13.1.115"}, "one release of CUDA"
    assert "nvidia-cuda-nvcc" in dict(compilers)
    assert "CUDA_HOME=/opt/tensorrt-llm/" in body


def test_tensorrt_llm_finds_one_open_mpi() -> None:
    """NVIDIA's beside Ubuntu's: neither starts."""
    body = stages()["serve-tensorrt"]
    assert "openmpi-bin" in body
    assert re.search(r"rm -rf .*/opt/hpcx/ompi .*\\\n && .*\bldconfig", body)
    assert re.search(r"OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader$", body, re.MULTILINE)
    assert re.search(r"^ENV .*\bOPAL_PREFIX= ", body, re.MULTILINE)


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source
            ignored = False
            for rule in rules:
                if fnmatch.fnmatch(source, rule.removeprefix("!")):
                    ignored = not rule.startswith("!")
            assert not ignored, source


def test_the_installed_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extras in re.findall(r"'\.\[([\w,-]+)\]'", DOCKERFILE):
        for extra in extras.split(","):
            assert f"\n{extra} = [" in project, extra


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("10.14.1.48", "10.14.1.48"),
        ("11.1.0.106+cuda13.3", "11.1.0.106"),
        ("10.8.0.43-1+cuda12.8", "10.8.0.43"),
    ],
)
def test_the_image_tells_its_tensorrt(given: str, printed: str) -> None:
    command = ["bash", ROOT / "deploy" / "docker" / "tensorrt_version"]
    told = subprocess.run(
        command,
        env={"TRT_VERSION": given, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert (told.stdout.strip(), told.returncode) == (printed, 0)


def test_an_image_without_tensorrt_ends_the_build_with_a_sentence() -> None:
    command = ["bash", ROOT / "deploy" / "docker" / "tensorrt_version"]
    for given in ("", "11.1"):
        told = subprocess.run(
            command,
            env={"TRT_VERSION": given, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=10,
        )
        assert told.returncode == 1
        assert "libnvinfer" in told.stderr


@pytest.fixture
def health() -> Iterator[list[int]]:
    """A server whose readiness is the status in the list: [port, status]."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(state[1] if self.path == "/ready" else 404)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    state = [server.server_address[1], 200]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join(5)


def healthy(port: int, *url: str) -> int:
    command = [sys.executable, "-I", ROOT / "deploy" / "docker" / "healthy.py", *url]
    return subprocess.run(
        command, env={"TRIMODAL_HEALTH_PORT": str(port)}, capture_output=True, timeout=30
    ).returncode


def test_the_health_check_follows_readiness(health: list[int]) -> None:
    assert healthy(health[0]) == 0
    health[1] = 400
    assert healthy(health[0]) == 1
    assert healthy(1) == 1  # nobody listens there
    assert healthy(1, f"http://127.0.0.1:{health[0]}/ready") == 1
    health[1] = 200
    assert healthy(1, f"http://127.0.0.1:{health[0]}/ready") == 0
