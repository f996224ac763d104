"""Pairs that disagree: one bounded file of labelled pairs, for the server's user alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from trimodal.cache.audit import disagreements
from trimodal.cache.audit.disagreements import write_pair
from trimodal.cache.decision import Decision
from trimodal.cache.values import CacheScope, Entry


def write(file: Path, asked: str = "When?") -> bool:
    scope = CacheScope("0" * 16, "acme", "faq", "0" * 64)
    entry = Entry("Who?", "He.", "stop", 1, 64, 0.0, 1e12)
    return write_pair(file, Decision(scope, asked, "Who?", 0.97654321, True, entry), "At one.")


def test_a_line_is_a_pair_without_a_label(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    assert write(file)
    assert write(file)
    pair, again = map(json.loads, file.read_text().splitlines())
    assert pair == again
    assert pair.pop("id")
    assert pair == {
        "a": "When?", "b": "Who?", "label": None, "class": None, "domain": "faq", "score": 0.976543,
        "answers": ["He.", "At one."],
    }  # fmt: skip


def test_only_the_servers_user_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "made" / "pairs.jsonl"
    write(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_its_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disagreements, "MAX_BYTES", 400)
    file = tmp_path / "pairs.jsonl"
    assert [write(file, asked="x" * 100) for _ in range(4)] == [True, False, False, False]
    file.rename(tmp_path / "taken")
    assert write(file)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("")
    (tmp_path / "pairs.jsonl").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="symbolic"):
        write(tmp_path / "pairs.jsonl")
    assert (tmp_path / "kept").read_text() == ""


def test_any_text_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    assert write(file, asked="\ud800 \x00 \u2028\nnew line")
    assert len(file.read_bytes().split(b"\n")) == 2
