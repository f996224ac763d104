"""Packages beside OpenAI's, as their users call them, before the starter set."""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.e2e.gateway.calls.starter import Starter

# Slow: the packages are fetched.
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HERE = Path(__file__).parent / "others"


def run(*command: str | Path, cwd: Path, limit_s: float) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(1500)  # some hundred packages, fetched and compiled at their first import
def test_langchain_llamaindex_pydantic_ai_instructor_litellm(starter: Starter, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    wanted = HERE / "requirements.txt"
    run(python, "-m", "pip", "install", "--quiet", "-r", wanted, cwd=tmp_path, limit_s=800)
    told = run(python, HERE / "calls.py", starter.url, cwd=tmp_path, limit_s=600)
    assert "FAILED" not in told, told
    assert told.count("ok ") == 28, told


@pytest.mark.timeout(600)
def test_vercels_ai_sdk(starter: Starter, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: Vercel's AI SDK was not tried")
    for name in ("package.json", "calls.mjs"):
        shutil.copy(HERE / name, tmp_path)
    run("npm", "install", "--no-audit", "--no-fund", cwd=tmp_path, limit_s=300)
    told = run("node", "calls.mjs", starter.url, cwd=tmp_path, limit_s=300)
    assert "FAILED" not in told, told
    assert told.count("ok ") == 11, told
