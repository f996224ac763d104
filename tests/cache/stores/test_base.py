"""Which stores are files; when answers were last found is gathered, handed over once, and bounded."""

import pytest

from trimodal.cache.stores import base
from trimodal.cache.stores.base import Recency, is_file


def test_the_last_use_of_each_is_handed_over_once() -> None:
    uses = Recency()
    uses.note("p", "a", 1.0)
    uses.note("p", "b", 2.0)
    uses.note("p", "a", 3.0)
    uses.note("q", "a", 4.0)
    assert uses.take() == [("p", "b", 2.0), ("p", "a", 3.0), ("q", "a", 4.0)]
    assert uses.take() == []


def test_the_oldest_are_forgotten_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "RECENCY_LIMIT", 3)
    uses = Recency()
    for number in (0, 1, 2, 0, 3):
        uses.note("p", str(number), float(number))
    assert [key for _, key, _ in uses.take()] == ["2", "0", "3"]


@pytest.mark.parametrize(
    ("store", "file"),
    [("answers.sqlite", 1), ("/a:b/c", 1), ("memory:", 0), ("redis://h:1/0", 0), ("qdrant+http://h:1", 0)],
)
def test_a_file_is_told_from_a_url(store: str, file: int) -> None:
    assert is_file(store) == bool(file)
