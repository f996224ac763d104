"""Puts metric families behind one small Protocol, so that services count without knowing Triton.

Inside the server the factory is Triton's Python backend (`pb_utils.MetricFamily`),
in tests `MemoryMetrics`. This module defines no family: each task declares its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

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


def counters(
    name: str, metrics: Metrics, description: str, label: str, values: Sequence[str], **labels: str
) -> dict[str, Metric]:
    """One counter for each value of a label, by that value: all of them show from the start, at zero."""
    return {value: metrics.counter(name, description, {**labels, label: value}) for value in values}


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
        """The series `name{labels}`, made at zero when it is asked for first."""
        return self.series.setdefault((name, tuple(sorted(labels.items()))), _MemoryMetric())
