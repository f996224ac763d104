"""Counting without Triton, and the carrying thread between a service and Triton's families."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from tests.doubles import pb_utils
from tests.doubles.pb_utils import MetricFamily
from tests.llm.doubles.sinks import eventually
from trimodal.metrics import MemoryMetrics
from trimodal.triton.metrics import TritonMetrics


@pytest.fixture
def metrics() -> Iterator[TritonMetrics]:
    MetricFamily.families.clear()
    metrics = TritonMetrics(pb_utils, "m", "1")
    yield metrics
    metrics.close()


def only(kind: str) -> pb_utils.Metric:
    """The one series of the one family that there is."""
    (family,) = MetricFamily.families
    assert family.kind == kind
    (metric,) = family.metrics
    return metric


def test_increments_are_added_up(metrics):
    counter = metrics.counter("a_total", "A", {"kind": "x"})
    for _ in range(100):
        counter.increment(2)
    metrics.close()
    assert sum(only("counter").values("increment")) == 200
    assert len(only("counter").values("increment")) < 100
    assert only("counter").labels == {"kind": "x", "model": "m", "version": "1"}


def test_two_models_of_one_kind_have_a_series_each(metrics):
    other = TritonMetrics(pb_utils, "copy", "1")
    for one in (metrics, other):
        one.histogram("a_seconds", "A", {}, [1.0]).observe(0.5)
        one.close()
    series = [metric for family in MetricFamily.families for metric in family.metrics]
    assert [one.labels["model"] for one in series] == ["m", "copy"]


def test_a_gauge_shows_its_last_value(metrics):
    gauge = metrics.gauge("a", "A", {})
    for value in (3, 9, 4):
        gauge.set(value)
    metrics.close()
    assert only("gauge").values("set")[-1] == 4


def test_a_gauge_that_is_set_and_then_moved(metrics):
    gauge = metrics.gauge("a", "A", {})
    gauge.increment(7)  # what comes before a set does not count
    gauge.set(3)
    gauge.increment(2)
    metrics.close()
    metric = only("gauge")
    assert metric.values("set")[-1] + sum(metric.values("increment")[-1:]) == 5


def test_every_observation_is_carried(metrics):
    histogram = metrics.histogram("a_seconds", "A", {}, (0.1, 1.0))
    for value in (0.05, 0.5, 5.0):
        histogram.observe(value)
    metrics.close()
    assert only("histogram").values("observe") == [0.05, 0.5, 5.0]
    assert only("histogram").buckets == [0.1, 1.0]


def test_one_thread_makes_all_calls(metrics):
    """Two calls at once on one metric crash the server (2.51)."""
    counter = metrics.counter("a_total", "A", {"kind": "x"})
    gauge = metrics.gauge("b", "B", {})
    histogram = metrics.histogram("c", "C", {}, (1.0,))

    def work() -> None:
        for index in range(500):
            counter.increment(1)
            gauge.set(index)
            histogram.observe(index)
            metrics.counter("a_total", "A", {"kind": str(index % 7)}).increment(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics.close()
    calls = [call for family in MetricFamily.families for metric in family.metrics for call in metric.calls]
    carriers = {thread for _, _, thread in calls} | {family.thread for family in MetricFamily.families}
    assert len(carriers) == 1
    assert carriers.isdisjoint({*threads, threading.current_thread()})
    total = sum(
        sum(m.values("increment")) for f in MetricFamily.families for m in f.metrics if f.name == "a_total"
    )
    assert total == 4 * 500 * 2
    assert len(MetricFamily.families) == 3, "a family for each name, not for each series"


def test_asking_twice_gives_the_same_series(metrics):
    assert metrics.counter("a", "A", {"x": "1"}) is metrics.counter("a", "A", {"x": "1"})
    assert metrics.counter("a", "A", {"x": "1"}) is not metrics.counter("a", "A", {"x": "2"})
    metrics.counter("a", "A", {"x": "1"}).increment(1)
    metrics.close()
    (family,) = MetricFamily.families
    assert len(family.metrics) == 2


def test_values_arrive_without_being_asked_for(metrics):
    metrics.counter("a_total", "A", {}).increment(1)
    eventually(lambda: bool(MetricFamily.families) and only("counter").values("increment") == [1])


def test_memory_keeps_every_value():
    memory = MemoryMetrics()
    memory.counter("a_total", "A", {"x": "1"}).increment(2)
    memory.counter("a_total", "A", {"x": "1"}).increment(3)
    memory.gauge("b", "B", {}).set(7)
    memory.histogram("c", "C", {}, (1.0,)).observe(0.5)
    assert memory.get("a_total", {"x": "1"}).value == 5
    assert memory.get("b", {}).value == 7
    assert memory.get("c", {}).observations == [0.5]
    assert memory.get("d", {}).value == 0


def test_a_series_that_the_server_refuses_harms_no_other(metrics, monkeypatch, caplog):
    make = MetricFamily.Metric

    def refuse(self, **options):
        if self.name == "a_total":
            raise RuntimeError("there is one already")
        return make(self, **options)

    monkeypatch.setattr(MetricFamily, "Metric", refuse)
    refused, shown = metrics.counter("a_total", "A", {}), metrics.histogram("b_seconds", "B", {}, (1.0,))
    for _ in range(3):
        refused.increment(1)
        shown.observe(1.0)
        eventually(lambda: not shown._observed)
    metrics.close()
    (family,) = [family for family in MetricFamily.families if family.name == "b_seconds"]
    assert family.metrics[0].values("observe") == [1.0] * 3
    assert caplog.text.count("a_total is not shown: there is one already") == 1


def test_a_counter_that_would_go_down_is_not_passed_on(metrics, caplog):
    counter = metrics.counter("a_total", "A", {})
    other = metrics.counter("b_total", "B", {})
    counter.increment(-1)
    other.increment(1)
    metrics.close()
    first, second = (family.metrics[0] for family in MetricFamily.families)
    assert first.values("increment") == []
    assert second.values("increment") == [1]
    assert "a_total is not shown: a counter cannot go down" in caplog.text


def test_the_servers_metrics_are_never_freed(metrics):
    """Triton deletes the series of all who have it when the first frees his."""
    metrics.counter("a_total", "A", {}).increment(1)
    metrics.close()
    kept = [weakref.ref(one) for family in MetricFamily.families for one in (family, *family.metrics)]
    assert len(kept) == 2
    MetricFamily.families.clear()
    del metrics
    gc.collect()
    assert all(one() is not None for one in kept)


def test_a_gauge_is_said_again(metrics, monkeypatch):
    """Another process of the same model, which is being unloaded, sets the same one."""
    monkeypatch.setattr(TritonMetrics, "AGAIN_S", 0.01)
    metrics.gauge("a", "A", {}).set(4)
    eventually(lambda: bool(MetricFamily.families) and only("gauge").values("set")[:3] == [4, 4, 4])


def test_a_gauge_that_was_moved_is_said_again_too(metrics, monkeypatch):
    """A model that is loaded over itself: what ends in the old process counts down in the new one's gauge."""
    monkeypatch.setattr(TritonMetrics, "AGAIN_S", 0.01)
    gauge = metrics.gauge("a", "A", {})
    gauge.increment(3)
    eventually(lambda: bool(MetricFamily.families) and only("gauge").values("increment") == [3])
    gauge.increment(-1)
    eventually(lambda: only("gauge").values("set")[-2:] == [2, 2])


def test_nothing_is_carried_while_nothing_changes(monkeypatch):
    """Ten processes that looked twenty times a second for nothing took a fifth of all idle work."""
    MetricFamily.families.clear()
    monkeypatch.setattr(TritonMetrics, "AGAIN_S", 1e6)
    metrics = TritonMetrics(pb_utils, "m", "1")
    gauge, counter = metrics.gauge("a", "A", {}), metrics.counter("b_total", "B", {})
    gauge.set(4)
    eventually(lambda: len(MetricFamily.families) == 2 and not metrics._noted.is_set())
    for _ in range(3):
        gauge.set(4)
        counter.increment(0)
        assert not metrics._noted.is_set()
    gauge.set(5)
    eventually(lambda: MetricFamily.families[0].metrics[0].values("set") == [4, 5])
    metrics.close()
    assert MetricFamily.families[0].metrics[0].values("set") == [4, 5]
