"""Checks objects against the published schemas of Kubernetes, KEDA, Gateway API and prometheus-operator.

They are npm's kubernetes-models, made of the projects' own Go types; the lock file pins them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.objects import Object

TOOLS = Path(__file__).parent / "tools"


def problems(given: list[tuple[str, Object]]) -> list[str]:
    """What is wrong with objects, each with where it stands. Skips the test without npm or its registry."""
    text = json.dumps([{"where": where, "object": object} for where, object in given])
    command = ["node", "check.mjs"]
    done = subprocess.run(command, cwd=_packages(), input=text, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [f"{each['where']}: {each['problem']}" for each in json.loads(done.stdout)]


def _packages() -> Path:
    if not shutil.which("npm"):
        pytest.skip("no npm on PATH")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("TRIMODAL_CACHE") or Path(home) / "trimodal") / "cluster-schemas" / "npm"
    lock, fresh = TOOLS / "package-lock.json", folder / "package-lock.json"
    if not (fresh.is_file() and fresh.read_text() == lock.read_text() and (folder / "done").is_file()):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(TOOLS / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150)
        if done.returncode:
            pytest.skip(f"npm: {(done.stderr or done.stdout).strip()[-300:]}")
        (folder / "done").touch()
    shutil.copy(TOOLS / "check.mjs", folder)
    return folder
