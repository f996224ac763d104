"""Metric families behind one small Protocol, so that services count without knowing Triton.

Inside the server the factory is Triton's Python backend (`pb_utils.MetricFamily`),
in tests `MemoryMetrics`. This module defines no family: each task declares its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Labels = Mapping[str, str]


class Metric(Protocol):
    """One time series."""

    def increment(self, value: float) -> None:
        """Adds to a counter or gauge."""

    def set(self, value: float) -> None:
        """Sets a gauge."""

    def observe(self, value: float) -> None:
        """Adds an observation to a histogram."""


class Metrics(Protocol):
    """Makes time series; asking twice for the same one gives the same object."""

    def counter(self, name: str, description: str, labels: Labels) -> Metric: ...

    def gauge(self, name: str, description: str, labels: Labels) -> Metric: ...

    def histogram(self, name: str, description: str, labels: Labels, buckets: Sequence[float]) -> Metric: ...


class TritonMetrics:
    """Families of the Python backend. `pb_utils` is the module that only the stub can import."""

    def __init__(self, pb_utils: Any) -> None:
        self._pb_utils = pb_utils
        self._families: dict[str, Any] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}

    def counter(self, name: str, description: str, labels: Labels) -> Metric:
        return self._one("COUNTER", name, description, labels)

    def gauge(self, name: str, description: str, labels: Labels) -> Metric:
        return self._one("GAUGE", name, description, labels)

    def histogram(self, name: str, description: str, labels: Labels, buckets: Sequence[float]) -> Metric:
        return self._one("HISTOGRAM", name, description, labels, buckets=list(buckets))

    def _one(self, kind: str, name: str, description: str, labels: Labels, **options: Any) -> Metric:
        key = (name, tuple(sorted(labels.items())))
        if key not in self._series:
            if name not in self._families:
                family = self._pb_utils.MetricFamily
                self._families[name] = family(name=name, description=description, kind=getattr(family, kind))
            self._series[key] = self._families[name].Metric(labels=dict(labels), **options)
        metric: Metric = self._series[key]
        return metric


class _MemoryMetric:
    def __init__(self) -> None:
        self.value = 0.0
        self.observations: list[float] = []
        self._lock = threading.Lock()

    def increment(self, value: float) -> None:
        with self._lock:
            self.value += value

    def set(self, value: float) -> None:
        self.value = value

    def observe(self, value: float) -> None:
        with self._lock:
            self.observations.append(value)


class MemoryMetrics:
    """The fake that ships beside the real one: keeps every value, for tests and benches."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, tuple[tuple[str, str], ...]], _MemoryMetric] = {}

    def counter(self, name: str, description: str, labels: Labels) -> _MemoryMetric:
        return self.get(name, labels)

    gauge = counter

    def histogram(
        self, name: str, description: str, labels: Labels, buckets: Sequence[float]
    ) -> _MemoryMetric:
        return self.get(name, labels)

    def get(self, name: str, labels: Labels) -> _MemoryMetric:
        """The series `name{labels}`, made at zero when nobody asked for it yet."""
        return self.series.setdefault((name, tuple(sorted(labels.items()))), _MemoryMetric())
