"""Publishes metrics through Triton's Python backend."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from trimodal.metrics import Labels, Metric

logger = logging.getLogger(__name__)


class TritonMetrics:
    """Families of the Python backend, whose series all have the `model` and its `version` as labels.

    `pb_utils` is the module that only the stub can import.

    Every call into a Triton metric is a round trip to the server's process, and two at
    once on one metric crash that process (seen on 2.51). So callers only note the value,
    and one thread carries the notes over: increments added up, gauges at their last value.
    """

    PERIOD_S = 0.05
    # A gauge is said again: of a model that is loaded over itself, both processes set the same.
    AGAIN_S = 1.0

    def __init__(self, pb_utils: Any, model: str, version: str) -> None:
        self._labels = {"model": model, "version": version}
        self._pb_utils = pb_utils
        self._families: dict[str, Any] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], _TritonMetric] = {}
        self._lock = threading.Lock()
        self._failed: set[str] = set()
        self._noted = threading.Event()  # something is to be carried over
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="metrics", daemon=True)
        self._thread.start()

    def counter(self, name: str, description: str, labels: Labels) -> Metric:
        return self._one("COUNTER", name, description, labels)

    def gauge(self, name: str, description: str, labels: Labels) -> Metric:
        return self._one("GAUGE", name, description, labels)

    def histogram(self, name: str, description: str, labels: Labels, buckets: Sequence[float]) -> Metric:
        return self._one("HISTOGRAM", name, description, labels, buckets=list(buckets))

    def close(self) -> None:
        """Carries the last notes over and ends the thread; before the model is unloaded."""
        self._ended.set()
        self._noted.set()
        self._thread.join(5.0)

    def _one(self, kind: str, name: str, description: str, labels: Labels, **options: Any) -> Metric:
        labels = {**self._labels, **labels}
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            if key not in self._series:
                self._series[key] = _TritonMetric(self._noted, kind, name, description, labels, **options)
                self._noted.set()  # it shows from the start, at zero
            return self._series[key]

    def _carry(self) -> None:
        said = time.monotonic()
        while True:
            self._noted.wait(self.AGAIN_S)
            if self._ended.wait(self.PERIOD_S):  # what else is noted meanwhile goes with it
                break
            self._noted.clear()
            again = time.monotonic() - said >= self.AGAIN_S
            self._flush(again=again)
            if again:
                said = time.monotonic()
        self._flush()

    def _flush(self, *, again: bool = False) -> None:
        with self._lock:
            series = list(self._series.values())
        for metric in series:
            try:
                metric.target = metric.target or self._target(metric)
                metric.flush(again=again)
            except Exception as error:
                # The other series must go on, and this one's notes must not pile up.
                metric.drop()
                if metric.name not in self._failed:
                    self._failed.add(metric.name)
                    logger.warning("metric %s is not shown: %s", metric.name, error)

    def _target(self, metric: _TritonMetric) -> Any:
        family = self._pb_utils.MetricFamily
        if metric.name not in self._families:
            self._families[metric.name] = _kept(
                family(name=metric.name, description=metric.description, kind=getattr(family, metric.kind))
            )
        return _kept(self._families[metric.name].Metric(labels=metric.labels, **metric.options))


def _kept(one: Any) -> Any:
    """Keeps a family or a metric from ever being freed, also at the interpreter's end.

    Triton (2.51) keeps one time series for each name and labels, whoever asks for it, and deletes it when
    the first of them frees his: the next word of another (the same model, loaded over itself; a second
    instance) then ended the server with signal 11 or in free(). The server grew by 3 to 10 kB a load.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    return one


class _TritonMetric:
    """Notes for one series, and the Triton metric they go to; `target` belongs to the carrying thread.

    `noted` is set where that thread has something to carry.
    """

    def __init__(
        self,
        noted: threading.Event,
        kind: str,
        name: str,
        description: str,
        labels: Labels,
        **options: Any,
    ) -> None:
        self._noted = noted
        self.kind, self.name, self.description = kind, name, description
        self.labels, self.options = dict(labels), options
        self.target: Any = None
        self._lock = threading.Lock()
        self._added = 0.0
        # A gauge of this name may still be there, of a process that ended: its level is nobody's any more.
        self._level: float | None = 0.0 if kind == "GAUGE" else None
        self._shown: float | None = None  # a gauge's level as Triton has it, or is about to; None: not known
        self._observed: list[float] = []

    def increment(self, value: float) -> None:
        if not value:
            return
        with self._lock:
            self._added += value
        self._noted.set()

    def set(self, value: float) -> None:
        with self._lock:
            # Many are set again and again to what they are.
            if value == self._shown and self._level is None and not self._added:
                return
            self._level, self._added = value, 0.0
        self._noted.set()

    def observe(self, value: float) -> None:
        with self._lock:
            self._observed.append(value)
        self._noted.set()

    def drop(self, *, again: bool = False) -> tuple[float | None, float, list[float]]:
        """Forgets what was noted, and returns it: a level, what came on top, observations.

        `again`: a level also where Triton has it.
        """
        with self._lock:
            level, added, observed = self._level, self._added, self._observed
            self._level, self._added, self._observed = None, 0.0, []
            if level is None and again:
                level = self._shown
            if level is not None:
                self._shown = level
            if self._shown is not None:
                self._shown += added
        return level, added, observed

    def flush(self, *, again: bool) -> None:
        level, added, observed = self.drop(again=again)
        if level is not None:
            self.target.set(level)
        if added < 0 and self.kind == "COUNTER":
            # Not even tried: Triton's answer to it was seen to end the server (lock_exception, 2.51).
            raise ValueError(f"a counter cannot go down, by {added}")
        if added:
            self.target.increment(added)
        for value in observed:
            self.target.observe(value)
