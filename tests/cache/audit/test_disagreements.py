"""Pairs that disagree: one bounded file a tenant, as labelled pairs, for the server's user alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from trimodal.cache.audit import disagreements
from trimodal.cache.audit.disagreements import Disagreements, digest
from trimodal.cache.decision import Decision
from trimodal.cache.values import CacheScope, Entry


def write(file: Disagreements, tenant: str = "acme", asked: str = "When?") -> bool:
    scope = CacheScope("0" * 16, tenant, "faq", "0" * 64)
    entry = Entry("Who?", "He.", "stop", 1, 64, 0.0, 1e12)
    return file.write(Decision(scope, asked, "Who?", 0.97654321, True, entry), "At one.")


def test_a_line_is_a_pair_without_a_label(tmp_path: Path) -> None:
    assert write(Disagreements(tmp_path / "pairs"))
    (path,) = (tmp_path / "pairs").iterdir()
    pair = json.loads(path.read_text())
    assert pair.pop("id")
    assert pair == {
        "a": "When?", "b": "Who?", "label": None, "class": None, "domain": "faq", "score": 0.976543,
        "answers": ["He.", "At one."],
    }  # fmt: skip


def test_each_tenant_has_a_file_whose_name_tells_nothing(tmp_path: Path) -> None:
    file = Disagreements(tmp_path)
    for tenant in ("acme", "../../etc/passwd", "", "acme"):
        assert write(file, tenant)
    names = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    assert names == {f"{digest('acme')}.jsonl": 2, f"{digest('../../etc/passwd')}.jsonl": 1, "none.jsonl": 1}
    assert not any("acme" in name for name in names)


def test_only_the_servers_user_reads_it(tmp_path: Path) -> None:
    write(Disagreements(tmp_path / "pairs"))
    (path,) = (tmp_path / "pairs").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disagreements, "MAX_FILES", 2)
    file = Disagreements(tmp_path, max_bytes=400)
    assert [write(file, asked="x" * 100) for _ in range(4)] == [True, False, False, False]
    assert write(file, "other")
    assert not write(file, "third")
    (tmp_path / f"{digest('acme')}.jsonl").rename(tmp_path / "taken")
    assert write(file)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    (tmp_path / f"{digest('acme')}.jsonl").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="symbolic"):
        write(Disagreements(tmp_path))
    assert (tmp_path / "kept").read_text() == ""


def test_any_text_can_be_written(tmp_path: Path) -> None:
    assert write(Disagreements(tmp_path), asked="\ud800 \x00 \u2028\nnew line")
    (path,) = tmp_path.iterdir()
    assert len(path.read_bytes().split(b"\n")) == 2
