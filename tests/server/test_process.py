"""What a server needs of the machine before Triton is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.errors import ServerError
from trimodal.server.process import _new_log


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(ServerError, match="not a directory.*set TRIMODAL_CACHE .* or name a file with --log"):
        _new_log()
