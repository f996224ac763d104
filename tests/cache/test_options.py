"""Options out of settings: seconds, the default file, and how long a namespace's answers live."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.cache.options import CacheOptions, default_store, is_file
from trimodal.llm.settings import LlmSettings


def test_settings_become_seconds_and_values():
    settings = LlmSettings(
        cache="semantic",
        cache_store="redis://127.0.0.1:6379/0",
        cache_budget_ms=15,
        cache_embedding_budget_ms=40,
        cache_ttl_s="faq=60 live=5",
        cache_max_entries=7,
        cache_max_answer_bytes=8,
        cache_max_false_hit=0.02,
        cache_calibration="ours.json",
        version_directory=Path("llm/1"),
    )
    assert CacheOptions.of(settings, "llm") == CacheOptions(
        "semantic",
        "redis://127.0.0.1:6379/0",
        0.015,
        0.04,
        {"faq": 60.0, "live": 5.0},
        7,
        8,
        0.02,
        Path("llm/ours.json"),
    )


def test_without_a_store_answers_lie_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path))
    options = CacheOptions.of(LlmSettings(cache="exact"), "chat")
    assert options.store == str(tmp_path / "answers" / "chat.sqlite") == str(default_store("chat"))
    assert not (tmp_path / "answers").exists()


def test_the_first_namespace_is_that_of_requests_without_one():
    options = CacheOptions("exact", "", ttls={"faq": 60.0, "live": 5.0})
    assert [options.ttl(name) for name in ("faq", "live", "", "other")] == [60, 5, 60, 60]


@pytest.mark.parametrize(("mode", "stores"), [("off", 0), ("coalesce", 0), ("exact", 1), ("semantic", 1)])
def test_only_two_modes_store(mode, stores):
    assert CacheOptions(mode, "").stores == bool(stores)


@pytest.mark.parametrize(
    ("store", "file"),
    [("answers.sqlite", 1), ("/a:b/c", 1), ("memory:", 0), ("redis://h:1/0", 0), ("qdrant+http://h:1", 0)],
)
def test_a_file_is_told_from_a_url(store, file):
    assert is_file(store) == bool(file)
