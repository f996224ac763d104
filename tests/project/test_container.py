"""Dockerfile and docker-compose.yml: valid, pinned, as closed as they claim. Nothing is built or started."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doubles.http_server import answering

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()


def test_the_compose_file_keeps_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, ROOT / "docker-compose.yml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root_keeps_capabilities_or_opens_a_port_untold(name: str) -> None:
    service = SERVICES[name]
    # Prometheus' image has its data belong to 65534, nobody.
    assert service["user"] == ("65534:65534" if name.startswith("prometheus") else "1000:1000")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    for port in service.get("ports", ()):
        assert re.match(r"\$\{TRIMODAL_\w+:-127\.0\.0\.1\}:", port), port


@pytest.mark.parametrize("name", [name for name, one in SERVICES.items() if "restart" in one])
def test_what_a_service_writes_in_a_year_fits_its_disk(name: str) -> None:
    """Docker keeps a container's output whole by default: a gateway's line a request, a proxy's refusals."""
    assert {"max-size", "max-file"} <= SERVICES[name]["logging"]["options"].keys()


def stages() -> dict[str, str]:
    """Target → its instructions."""
    parts = re.split(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return {name: body for name, body in zip(parts[2::3], parts[3::3], strict=True)}


def test_the_image_is_pinned_and_has_the_fixes_of_may_2026() -> None:
    year, month = map(int, re.findall(r"^ARG TRITON=(\d+)\.(\d+)$", DOCKERFILE, re.MULTILINE)[0])
    assert (year, month) >= (26, 5)
    base = r"^FROM nvcr.io/nvidia/tritonserver:\$\{TRITON\}-py3(@sha256:[0-9a-f]{64})? AS base$"
    assert re.search(base, DOCKERFILE, re.MULTILINE)
    assert ":latest" not in DOCKERFILE
    assert "tensorrt_llm==1.2.1" in DOCKERFILE


def test_every_target_of_the_compose_file_exists_and_ends_as_user_1000() -> None:
    for service in SERVICES.values():
        if "build" not in service:
            continue  # another project's image
        body = stages()[service["build"]["target"]]
        assert re.findall(r"^USER (\S+)$", body, re.MULTILINE)[-1] == "1000:1000"


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


def test_where_the_package_is_the_samples_are() -> None:
    """The gateway's page shows them, and builds check themselves with them."""
    copying = [body for body in stages().values() if "COPY trimodal trimodal\n" in body]
    assert len(copying) == 3
    assert all("COPY samples samples\n" in body for body in copying)


def test_where_the_package_is_installed_all_is_that_builds_it() -> None:
    """pip ends with "Build script does not exist" where a hook of pyproject.toml is left behind."""
    project = (ROOT / "pyproject.toml").read_text()
    needed = re.findall(r'^(?:readme|path) = "(.*)"$', project, re.MULTILINE)
    assert needed == ["README.md", "hatch_build.py"]
    for target in ("base", "cuda"):
        (copied,) = re.findall(r"^COPY (pyproject\.toml .*) \./$", stages()[target], re.MULTILINE)
        assert set(needed) < set(copied.split())
    assert "pyproject" not in stages()["gateway"]


def test_the_gateway_is_of_files_with_hashes_alone() -> None:
    calls = re.findall(r"pip install [^&\n]*", stages()["gateway"])
    assert calls
    assert all("--require-hashes" in call for call in calls)


@pytest.mark.parametrize(
    ("given", "code", "printed"),
    [
        ("10.14.1.48", 0, "10.14.1.48"),
        ("11.1.0.106+cuda13.3", 0, "11.1.0.106"),
        ("10.8.0.43-1+cuda12.8", 0, "10.8.0.43"),
        ("", 1, "libnvinfer"),
        ("11.1", 1, "libnvinfer"),
    ],
)
def test_the_image_tells_its_tensorrt_or_ends_the_build(given: str, code: int, printed: str) -> None:
    done = subprocess.run(
        ["bash", ROOT / "deploy" / "docker" / "tensorrt_version"],
        env={"TRT_VERSION": given, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert done.returncode == code
    assert printed in (done.stderr if code else done.stdout)


@pytest.fixture
def health() -> Iterator[list[int]]:
    """A server whose readiness is the status in the list: [port, status]."""

    state = [0, 200]
    with answering(lambda asked: (state[1] if asked.path == "/ready" else 404, b"")) as port:
        state[0] = port
        yield state


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
