"""The cache's series: all there from the start, and none that a client could name."""

from __future__ import annotations

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
