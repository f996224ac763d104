"""Summarises one level of load: who met its bounds, who was refused and how fast, how good forecasts were.

A request is good when its first text came within its tier's `ttft_deadline_ms` and no gap
between two deltas was above its `itl_bound_ms`. Goodput is those that also ended in the time
in which requests were due, a second of that time: what is worked off when no load comes any
more would make a queue look like capacity.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trimodal.bench.overload.load import Result
from trimodal.bench.overload.machine import Memory
from trimodal.client.timing import percentile
from trimodal.llm.tiers import Tier

_ERRORS_KEPT = 5
VERDICTS = ("met", "late", "uneven", "refused", "expired", "lost")


@dataclass(frozen=True)
class TierFigures:
    """One tier's requests; every one of `sent` is counted once in the six after it.

    Attributes:
        met: good. late: first text too late. uneven: first text in time, then a gap too long.
        refused: at once. expired: let in, then refused without any text.
        lost: failed, given up by the client, or not sent because too many were open.
        ttft_p50, ttft_p99: milliseconds, of those that got a text or were left waiting for one; the latter
            count as longer than all others. None: so many got none.
    """

    sent: int
    met: int
    late: int
    uneven: int
    refused: int
    expired: int
    lost: int
    ttft_p50: float | None
    ttft_p99: float | None


@dataclass(frozen=True)
class Spread:
    """Percentiles in milliseconds of `count` times; None without any."""

    count: int
    p50: float | None
    p90: float | None
    p99: float | None
    most: float | None


@dataclass(frozen=True)
class LevelFigures:
    """One side at one level of load.

    Attributes:
        load: offered, over capacity. rate: offered requests a second. sent: those that were due.
        goodput: good requests a second.
        refusals: from when a request was due to when its refusal came.
        served_refusals: the same from when it was sent.
        retry_after: what refusals told.
        forecast_error: |observed - foreseen| TTFT of answered requests, counted from their sending.
        forecast_bias: the median of observed - foreseen, milliseconds; above 0: foreseen too short.
        lag: from when a request was due to when the client really sent it.
        others: the share of the machine's CPU time that neither client nor server took, 0 to 1.
        unsent: the client's own bound on open requests was reached; such a level measures the client too.
    """

    load: float
    rate: float
    sent: int
    goodput: float
    tiers: dict[str, TierFigures]
    refusals: Spread
    served_refusals: Spread
    retry_after: Spread
    forecast_error: Spread
    forecast_bias: float | None
    lag: Spread
    unsent: int
    others: float
    memory: dict[str, Memory] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)


def verdict_of(result: Result, tier: Tier) -> str:
    """Returns the one of VERDICTS, fields of `TierFigures`, that a result counts in."""
    if result.outcome in ("refused", "expired"):
        return result.outcome
    if result.outcome != "answered":
        return "lost"
    if tier.ttft_deadline_ms and result.ttft * 1e3 > tier.ttft_deadline_ms:
        return "late"
    if tier.itl_bound_ms and result.gap * 1e3 > tier.itl_bound_ms:
        return "uneven"
    return "met"


def summarise_level(
    results: Sequence[Result],
    tiers: Mapping[str, Tier],
    *,
    load: float,
    rate: float,
    seconds: float,
    others: float = 0.0,
    memory: Mapping[str, Memory] | None = None,
) -> LevelFigures:
    """Summarises all requests of a level that were due within `seconds`."""
    by_tier = {name: [one for one in results if one.asked.tier == name] for name in tiers}
    good = (one for one in results if verdict_of(one, tiers[one.asked.tier]) == "met")
    refused = [one for one in results if one.outcome == "refused"]
    # The server foresees from when a request reaches it: a client that sent late is not its error.
    misses = [one.ttft - one.lag - one.predicted for one in results if not math.isnan(one.predicted)]
    errors = Counter(one.error for one in results if one.outcome == "failed")
    return LevelFigures(
        load=load,
        rate=rate,
        sent=len(results),
        goodput=sum(one.asked.at + one.total <= seconds for one in good) / seconds,
        tiers={name: _tier_figures(some, tiers[name]) for name, some in by_tier.items() if some},
        refusals=spread(one.total for one in refused),
        served_refusals=spread(one.total - one.lag for one in refused),
        retry_after=spread(one.retry_after for one in refused),
        forecast_error=spread(abs(miss) for miss in misses),
        forecast_bias=_ms(percentile(misses, 50)),
        lag=spread(one.lag for one in results),
        unsent=sum(one.outcome == "unsent" for one in results),
        others=others,
        memory=dict(memory or {}),
        errors=dict(errors.most_common(_ERRORS_KEPT)),
    )


def spread(seconds: Iterable[float]) -> Spread:
    """Percentiles of those that are numbers."""
    known = [one for one in seconds if not math.isnan(one)]
    p50, p90, p99, most = (_ms(percentile(known, percent)) for percent in (50, 90, 99, 100))
    return Spread(len(known), p50, p90, p99, most)


def _tier_figures(results: Sequence[Result], tier: Tier) -> TierFigures:
    counts = Counter(verdict_of(one, tier) for one in results)
    times = [
        math.inf if math.isnan(one.ttft) else one.ttft
        for one in results
        if one.outcome not in ("refused", "expired", "unsent")
    ]
    p50, p99 = (_ms(percentile(times, percent)) for percent in (50, 99))
    verdicts = {name: counts[name] for name in VERDICTS}
    return TierFigures(sent=len(results), **verdicts, ttft_p50=p50, ttft_p99=p99)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else seconds * 1e3
