"""The cache's series: all there from the start, and none that a client could name."""

from __future__ import annotations

import pytest

from trimodal.cache.metrics import CacheMetrics
from trimodal.metrics import MemoryMetrics


def test_every_series_is_there_at_zero():
    metrics = MemoryMetrics()
    CacheMetrics(metrics, "llm")
    names = [name for name, _ in metrics.series]
    assert {name: names.count(name) for name in names} == {
        "trimodal_cache_lookups_total": 6,
        "trimodal_cache_bypassed_total": 4,
        "trimodal_cache_refused_total": 5,
        "trimodal_cache_stored_total": 4,
        "trimodal_cache_lookup_seconds": 2,
        "trimodal_cache_entries": 1,
    }
    assert not any(series.value for series in metrics.series.values())


def test_no_call_makes_a_series_of_its_own():
    metrics = MemoryMetrics()
    counts = CacheMetrics(metrics, "llm")
    before = set(metrics.series)
    counts.looked_up("exact", "hit", 0.001)
    counts.bypassed("timeout")
    counts.refused("judge")
    counts.stored("kept")
    assert set(metrics.series) == before
    with pytest.raises(KeyError):
        counts.refused("a client's own")
