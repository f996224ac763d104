"""The process of a model, as it begins."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

BEGIN = "from trimodal.triton.stub import begin; begin({'model_name': 'llm'})"


@pytest.fixture
def regions() -> Iterator[list[Path]]:
    """Two files in shared memory that everybody may read."""
    files = [Path("/dev/shm") / f"trimodal-test-{uuid4().hex}" for _ in range(2)]
    for file in files:
        file.touch(0o644)
        file.chmod(0o644)
    yield files
    for file in files:
        file.unlink()


@pytest.mark.parametrize("slash", ["", "/"])
def test_its_region_is_closed_and_no_other(regions: list[Path], slash: str) -> None:
    own, other = regions
    arguments = ["model.py", f"{slash}{own.name}", "1048576", "", "..", "/"]
    subprocess.run([sys.executable, "-c", BEGIN, *arguments], check=True, timeout=60)
    assert [file.stat().st_mode & 0o777 for file in (own, other)] == [0o600, 0o644]
