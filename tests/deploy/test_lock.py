"""The gateway's image installs what is pinned, by its hash; images of others get their digests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trimodal.settings import read_toml

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_the_lock_has_the_pinned_versions_and_a_hash_for_each() -> None:
    command = [sys.executable, ROOT / "scripts" / "ci" / "lock", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lines = (ROOT / "deploy" / "docker" / "gateway.lock").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    names = {_plain(line.partition("==")[0]) for line in lines}
    project = read_toml(ROOT / "pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["gateway"], *extras["audio"], *extras["stores"]]
    direct = {_plain(re.split(r"[\[<>=]", one)[0]) for one in wanted if "python_version <" not in one}
    assert {"fastapi", "numpy", "redis", "soxr"} < direct
    assert direct | {"faster-whisper", "av"} <= names
    assert "torch" not in names


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    return tmp_path


def images(copy: Path, *options: str, docker: str = f"echo {DIGEST}") -> tuple[int, list[str]]:
    """Exit code and lines of the script on a copy of the tree, with this shell script for docker."""
    program = copy / "bin" / "docker"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "$4" >> {copy}/asked\n{docker}\n')
    program.chmod(0o755)
    command = [sys.executable, ROOT / "scripts" / "ci" / "images", *options]
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TRIMODAL_IMAGES_ROOT": str(copy)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    return done.returncode, done.stdout.splitlines()


def test_those_of_others_are_asked_for_once_each_and_pinned(copy: Path) -> None:
    code, told = images(copy, "--check")
    others = [line for line in told if not line.endswith("is by tag")]
    assert (code, others) == (1, []) or (code, told) == (0, [])
    assert not (copy / "asked").exists()

    assert images(copy)[0] == 0
    asked = (copy / "asked").read_text().splitlines()
    assert len(asked) == len(set(asked))
    assert any(name.startswith("nvcr.io/nvidia/tritonserver:2") for name in asked)
    assert images(copy, "--check") == (0, [])
    services = yaml.safe_load((copy / "docker-compose.yml").read_text())["services"].values()
    named = [one["image"] for one in services if "image" in one]
    assert all(name.startswith("trimodal:") or name.endswith(f"@{DIGEST}") for name in named)
    written = (copy / "docker-compose.yml").read_text(), (copy / "deploy/docker/Dockerfile").read_text()
    assert f"tritonserver:${{TRITON}}-py3@{DIGEST} AS base" in written[1]
    assert images(copy)[0] == 0  # again: one digest each
    assert written == (
        (copy / "docker-compose.yml").read_text(),
        (copy / "deploy/docker/Dockerfile").read_text(),
    )


@pytest.mark.parametrize("docker", ["exit 1", "echo latest"])
def test_where_a_registry_does_not_answer_nothing_is_written(copy: Path, docker: str) -> None:
    before = (copy / "docker-compose.yml").read_text()
    code, _ = images(copy, docker=docker)
    assert code != 0
    assert (copy / "docker-compose.yml").read_text() == before
