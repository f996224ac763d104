"""Counts what a simulated fleet did: latencies, goodput, tokens, and what it cost."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import numpy as np

from trimodal.plan.fleet.engine import Sequence
from trimodal.plan.fleet.spec import FleetSpec

PERCENTS = (50, 95, 99)


@dataclass(frozen=True)
class Objective:
    """What a good request keeps, in seconds; inf: no bound. `tpot`: mean time of a token after the first."""

    ttft: float = math.inf
    tpot: float = math.inf
    latency: float = math.inf


@dataclass(frozen=True)
class Outcome:
    """What became of a fleet. Latencies are of answered requests, in milliseconds, "p50" → value.

    Attributes:
        requests: that came after the warm-up; each is answered or refused.
        refused: no replica had room, or it is larger than the KV cache.
        attainment: good requests, of all that came; goodput: good ones a second.
        hit_rate: of the prompt tokens, that the prefix cache spared.
        utilisation: of the batch slots, that were taken, until the last answer.
        cost: of the replicas until then; cost_per_million: output tokens.
    """

    name: str
    replicas: int
    seconds: float
    requests: int
    answered: int
    refused: int
    good: int
    attainment: float
    goodput: float
    output_tokens_per_s: float
    ttft_ms: dict[str, float]
    itl_ms: dict[str, float]
    tpot_ms: dict[str, float]
    latency_ms: dict[str, float]
    hit_rate: float
    utilisation: float
    cost: float
    cost_per_million: float | None


class Tally:
    """Takes in what happens to each request that arrives after `warmup` seconds."""

    def __init__(self, objective: Objective, warmup: float, overhead: float) -> None:
        self._objective, self._warmup, self._overhead = objective, warmup, overhead
        self.ttft, self.tpot, self.latency = array("f"), array("f"), array("f")
        self.gaps, self.gap_counts = array("f"), array("q")
        self.requests = self.refused = self.good = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = self.all_tokens = 0

    def came(self, at: float) -> None:
        self.requests += at >= self._warmup

    def refuse(self, at: float) -> None:
        self.refused += at >= self._warmup

    def gap(self, seconds: float, count: int) -> None:
        """Takes `count` gaps between two tokens."""
        self.gaps.append(seconds)
        self.gap_counts.append(count)

    def end(self, one: Sequence, now: float) -> None:
        """Takes an answer that is complete now."""
        self.all_tokens += one.output
        if one.at < self._warmup:
            return
        self.prompt_tokens += one.prompt
        self.cached_tokens += one.cached
        self.output_tokens += one.output
        ttft, latency = one.first - one.at + self._overhead, now - one.at + self._overhead
        self.ttft.append(ttft)
        self.latency.append(latency)
        wanted, tpot = self._objective, 0.0
        if one.output > 1:
            tpot = (now - one.first) / (one.output - 1)
            self.tpot.append(tpot)
        self.good += ttft <= wanted.ttft and tpot <= wanted.tpot and latency <= wanted.latency

    def outcome(self, spec: FleetSpec, seconds: float, end: float, slot_s: float) -> Outcome:
        """Sums up a run: seconds of its arrivals, until its last answer, and of taken batch slots."""
        counted = seconds - self._warmup or math.inf  # all at one moment: no rate
        hours = spec.replicas * end / 3600
        cost = hours * spec.replica.price_per_hour
        slots = spec.replicas * spec.replica.max_num_seqs * end
        return Outcome(
            name=spec.name,
            replicas=spec.replicas,
            seconds=seconds,
            requests=self.requests,
            answered=len(self.ttft),
            refused=self.refused,
            good=self.good,
            attainment=self.good / self.requests if self.requests else 0.0,
            goodput=self.good / counted,
            output_tokens_per_s=self.output_tokens / counted,
            ttft_ms=_percentiles(self.ttft),
            itl_ms=_percentiles(self.gaps, self.gap_counts),
            tpot_ms=_percentiles(self.tpot),
            latency_ms=_percentiles(self.latency),
            hit_rate=self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0,
            utilisation=slot_s / slots if slots else 0.0,
            cost=cost,
            cost_per_million=cost / self.all_tokens * 1e6 if cost and self.all_tokens else None,
        )


def _percentiles(values: array[float], counts: array[int] | None = None) -> dict[str, float]:
    """Nearest-rank percentiles in milliseconds, of values that are there so often; empty without any."""
    if not values:
        return {}
    seconds = np.frombuffer(values, np.float32)
    order = np.argsort(seconds)
    weights = np.ones(len(seconds)) if counts is None else np.frombuffer(counts, np.int64)[order]
    seen = np.cumsum(weights)
    places = np.searchsorted(seen, np.ceil(np.array(PERCENTS) / 100 * seen[-1]))
    return {
        f"p{percent}": 1e3 * float(seconds[order[at]]) for percent, at in zip(PERCENTS, places, strict=True)
    }
