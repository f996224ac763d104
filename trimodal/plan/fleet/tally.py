"""Counts what a simulated plan did: latencies, goodput, tokens, and what it cost."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence as Row
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from trimodal.plan.fleet.engine import Sequence

PERCENTS = (50.0, 95.0, 99.0)
_FINENESS = 200  # buckets of gaps for each factor of e: half a per cent wide
_SMALLEST = 1e-7


@dataclass(frozen=True)
class Objective:
    """What a good request keeps, in seconds; inf: no bound. `tpot`: mean time of a token after the first."""

    ttft: float = math.inf
    tpot: float = math.inf
    latency: float = math.inf

    @property
    def bounded(self) -> bool:
        return min(self.ttft, self.tpot, self.latency) < math.inf


@dataclass(frozen=True)
class Outcome:
    """What became of a plan. Latencies are of answered requests, in milliseconds, "p50" → value.

    Attributes:
        requests: that came after the warm-up; each is answered, refused or lost.
        refused: no replica had room, or it is larger than the KV cache; lost: cut off by a replica that
            ended. asked_again: sent to another replica.
        attainment: good requests, of all that came; goodput: good ones a second.
        hit_rate: of the prompt tokens, that the prefix cache spared.
        busy: of the time that replicas were ready, that their engines made steps; utilisation: of their batch
            slots, that were taken.
        replicas: (second, ready, paid for) at every change; replica_hours: all that is paid for.
        cost: of the arrivals' time; cost_per_million: output tokens made in it.
    """

    name: str
    seconds: float
    requests: int
    answered: int
    refused: int
    lost: int
    asked_again: int
    good: int
    attainment: float
    goodput: float
    requests_per_s: float
    output_tokens_per_s: float
    ttft_ms: dict[str, float]
    itl_ms: dict[str, float]
    tpot_ms: dict[str, float]
    latency_ms: dict[str, float]
    hit_rate: float
    busy: float
    utilisation: float
    replica_hours: float
    most_replicas: int
    cost: float
    cost_per_million: float | None
    replicas: tuple[tuple[float, int, int], ...] = field(repr=False)

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


class Tally:
    """Takes in what happens to each request that arrives after `warmup` seconds."""

    def __init__(self, objective: Objective, warmup: float, overhead: float) -> None:
        self._objective = objective
        self._warmup = warmup
        self._overhead = overhead
        self._ttft, self._tpot, self._latency = array("f"), array("f"), array("f")
        self._gaps: Counter[int] = Counter()
        self.requests = self.answered = self.refused = self.lost = self.again = self.good = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0

    def came(self, at: float) -> None:
        self.requests += at >= self._warmup

    def refuse(self, at: float) -> None:
        self.refused += at >= self._warmup

    def lose(self, at: float) -> None:
        self.lost += at >= self._warmup

    def gap(self, seconds: float, count: int) -> None:
        """Takes `count` gaps between two tokens."""
        self._gaps[int(math.log(max(seconds, _SMALLEST) / _SMALLEST) * _FINENESS)] += count

    def end(self, one: Sequence, now: float) -> None:
        """Takes an answer that is complete now."""
        if one.at < self._warmup:
            return
        self.answered += 1
        self.prompt_tokens += one.prompt
        self.cached_tokens += one.cached
        self.output_tokens += one.output
        ttft, latency = one.first - one.at + self._overhead, now - one.at + self._overhead
        self._ttft.append(ttft)
        self._latency.append(latency)
        wanted, tpot = self._objective, 0.0
        if one.output > 1:
            tpot = (now - one.first) / (one.output - 1)
            self._tpot.append(tpot)
        if ttft <= wanted.ttft and tpot <= wanted.tpot and latency <= wanted.latency:
            self.good += 1

    def outcome(
        self,
        name: str,
        seconds: float,
        *,
        price_per_hour: float,
        busy: float,
        slots: float,
        ready: float,
        paid: float,
        made: int,
        replicas: Row[tuple[float, int, int]],
    ) -> Outcome:
        """Sums up a run whose arrivals took `seconds`.

        Args:
            busy, slots, ready, paid: replica-seconds in steps, with all batch slots taken, ready, paid for.
            made: tokens made meanwhile.
            replicas: as in `Outcome`.
        """
        counted = seconds - self._warmup or math.inf  # all at one moment: no rate
        cost = paid / 3600 * price_per_hour
        return Outcome(
            name=name,
            seconds=seconds,
            requests=self.requests,
            answered=self.answered,
            refused=self.refused,
            lost=self.lost,
            asked_again=self.again,
            good=self.good,
            attainment=self.good / self.requests if self.requests else 0.0,
            goodput=self.good / counted,
            requests_per_s=self.answered / counted,
            output_tokens_per_s=self.output_tokens / counted,
            ttft_ms=_percentiles(self._ttft),
            itl_ms=self._gap_percentiles(),
            tpot_ms=_percentiles(self._tpot),
            latency_ms=_percentiles(self._latency),
            hit_rate=self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0,
            busy=busy / ready if ready else 0.0,
            utilisation=slots / ready if ready else 0.0,
            replica_hours=paid / 3600,
            most_replicas=max((total for _, _, total in replicas), default=0),
            cost=cost,
            cost_per_million=cost / made * 1e6 if made and price_per_hour else None,
            replicas=tuple(replicas),
        )

    def _gap_percentiles(self) -> dict[str, float]:
        """The middle of the bucket in which each percentile lies."""
        total, seen, found = sum(self._gaps.values()), 0, {}
        buckets = iter(sorted(self._gaps.items()))
        bucket = 0
        for percent in PERCENTS if total else ():
            rank = math.ceil(percent / 100 * total)
            while seen < rank:
                bucket, count = next(buckets)
                seen += count
            found[f"p{percent:g}"] = 1e3 * _SMALLEST * math.exp((bucket + 0.5) / _FINENESS)
        return found


def _percentiles(values: array[float]) -> dict[str, float]:
    """Nearest-rank percentiles in milliseconds; empty without any value."""
    if not values:
        return {}
    ordered = np.sort(np.frombuffer(values, np.float32))
    return {
        f"p{percent:g}": 1e3 * float(ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)])
        for percent in PERCENTS
    }
