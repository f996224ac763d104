"""Options of a cache: how long a namespace's answers live, and which stores are files."""

from __future__ import annotations

import pytest

from trimodal.cache.options import CacheOptions, is_file


def test_the_first_namespace_is_that_of_requests_without_one():
    options = CacheOptions("exact", "", ttls={"faq": 60.0, "live": 5.0})
    assert [options.ttl(name) for name in ("faq", "live", "", "other")] == [60, 5, 60, 60]


@pytest.mark.parametrize(
    ("store", "file"),
    [("answers.sqlite", 1), ("/a:b/c", 1), ("memory:", 0), ("redis://h:1/0", 0), ("qdrant+http://h:1", 0)],
)
def test_a_file_is_told_from_a_url(store, file):
    assert is_file(store) == bool(file)
