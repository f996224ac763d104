"""Reads what Triton counted during a round: the batches it formed, and the time in queues and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tritonclient.grpc import InferenceServerClient


class Counts(NamedTuple):
    """A model's counters since it was loaded: items, runs, and nanoseconds of all requests."""

    inferences: int
    executions: int
    queue_ns: int
    model_ns: int


class StepTimes(NamedTuple):
    """One model during a round: mean items in a run, and mean milliseconds of a request."""

    batch: float
    queue_ms: float
    model_ms: float


class Statistics:
    """Reads the counters of some models of one server."""

    def __init__(self, url: str, models: Sequence[str]) -> None:
        self._client = InferenceServerClient(url)
        self._models = models

    def read(self) -> dict[str, Counts]:
        """Model → counters."""
        counts = {}
        for name in self._models:
            one = self._client.get_inference_statistics(name).model_stats[0]
            times = one.inference_stats
            inside = times.compute_input.ns + times.compute_infer.ns + times.compute_output.ns
            counts[name] = Counts(one.inference_count, one.execution_count, times.queue.ns, inside)
        return counts

    def close(self) -> None:
        self._client.close()


def between(before: Mapping[str, Counts], after: Mapping[str, Counts], items: int) -> dict[str, StepTimes]:
    """Model → what happened between two readings, of requests with `items` items each."""
    found = {}
    for name, now in after.items():
        inferences, runs, queue_ns, model_ns = (new - old for new, old in zip(now, before[name], strict=True))
        requests = max(1, inferences // items)
        found[name] = StepTimes(
            inferences / max(1, runs), queue_ns / requests / 1e6, model_ns / requests / 1e6
        )
    return found
