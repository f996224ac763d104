"""The gateway's image installs what constraints.txt pins, each package by its hash."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_lock_has_the_pinned_versions_and_a_hash_for_each() -> None:
    command = [sys.executable, ROOT / "scripts" / "ci" / "lock", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    lines = (ROOT / "deploy" / "docker" / "gateway.lock").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}
    assert {"fastapi", "uvicorn", "numpy", "faster-whisper", "av"} <= names
    assert "torch" not in names
