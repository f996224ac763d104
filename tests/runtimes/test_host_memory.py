"""The memory of this machine, and of a container with a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.runtimes import host_memory


@pytest.mark.parametrize("limit", [None, "max", str(1 << 20)])
def test_a_limit_counts_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None
) -> None:
    monkeypatch.setattr(host_memory, "CGROUP", tmp_path)
    if limit:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{1 << 18}\n")
    total, free = host_memory.host_memory()
    if limit and limit.isdecimal():
        assert (total, free) == (1 << 20, 3 << 18)
    else:
        assert total > free > 1 << 20
