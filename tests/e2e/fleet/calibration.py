"""Describes a replica by what load tests measured of a server.

Of closed loops with several numbers of clients the time of a step follows at several batch sizes:

    batch     = output tokens a second × TPOT                 (sequences that decode, Little's law)
    step time = TPOT × (1 − prefill seconds a token × prompt tokens a second that others had computed)

The time of a prompt token is the slope of TTFT over the computed prompt tokens, of the cases with the least
batch, after the steps were taken off that a prompt needs. With prompts of one length only it is what is left
of TTFT; with several, TTFT at no tokens is what a request costs outside the engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from trimodal.plan.fleet.spec import ReplicaFigures

_ALONE = 1.5  # a batch so small tells of prefill: nothing waits
_APART = 1.25  # prompts that differ by less are taken as equally long


@dataclass(frozen=True)
class Point:
    """One measured case: seconds and tokens a second."""

    batch: float
    tpot: float
    ttft: float
    prompt: float  # computed tokens of a prompt
    computed: float  # prompt tokens a second, without cached ones
    in_flight: float  # requests under way: a stream does not wait for its own prompt


def describe_replica(points: Sequence[Point], given: Mapping[str, int]) -> ReplicaFigures:
    """The description; `given` has what no load test measures, such as num_kv_blocks."""
    prefill, overhead = _prefill(points, given["max_num_batched_tokens"])
    steps: dict[int, list[float]] = {}
    for point in points:
        share = 1 - prefill * point.computed * (1 - 1 / max(1.0, point.in_flight))
        if share > 0:  # else prompts alone kept the engine busy
            steps.setdefault(max(1, round(point.batch)), []).append(1e3 * point.tpot * share)
    measured = {
        "step_ms": [(batch, round(median(times), 4)) for batch, times in sorted(steps.items())],
        "prefill_us": round(1e6 * prefill, 4),
        "overhead_ms": round(1e3 * overhead, 4),
    }
    return ReplicaFigures.model_validate({**measured, **given})


def _prefill(points: Sequence[Point], budget: int) -> tuple[float, float]:
    """Seconds of a prompt token, and of a request outside the engine."""
    least = min(point.batch for point in points)
    alone = [point for point in points if point.batch <= max(_ALONE, least * 1.1)]
    prompts = [point.prompt for point in alone]
    step = min(point.tpot for point in alone)
    rests = [point.ttft - step * math.ceil(point.prompt / budget - 1e-6) for point in alone]
    if max(prompts) < _APART * min(prompts):
        return max(0.0, median(rests) / fmean(prompts)), 0.0
    slope, rest = np.polyfit(prompts, rests, 1)
    return max(0.0, float(slope)), max(0.0, float(rest))
