"""What a clone of the tree weighs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JUDGE = "model_repository/judge/"
MOST_BYTES = 15_000_000


def test_the_tracked_files_beside_the_judges_model_are_small() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [name for name in listed.stdout.split("\0") if name and not name.startswith(JUDGE)]
    sizes = {name: (ROOT / name).stat().st_size for name in files if (ROOT / name).is_file()}
    assert len(sizes) > 500
    assert sum(sizes.values()) <= MOST_BYTES, sorted(sizes, key=lambda name: -sizes[name])[:5]
