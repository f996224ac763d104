"""The gateway's image installs what constraints.txt pins, each package by its hash."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from trimodal.settings import parse_toml

ROOT = Path(__file__).parents[2]


def test_the_lock_has_the_pinned_versions_and_a_hash_for_each() -> None:
    command = [sys.executable, ROOT / "scripts" / "ci" / "lock", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lines = (ROOT / "deploy" / "docker" / "gateway.lock").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    names = {_plain(line.partition("==")[0]) for line in lines}
    project = parse_toml((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["gateway"], *extras["audio"]]
    direct = {_plain(re.split(r"[\[<>=]", one)[0]) for one in wanted if "python_version <" not in one}
    assert {"fastapi", "numpy", "soxr"} < direct
    assert direct | {"faster-whisper", "av"} <= names
    assert "torch" not in names


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())
