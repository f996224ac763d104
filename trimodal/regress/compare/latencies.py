"""Compares the times of two runs: by case, and by task over all cases, with significance.

Like is compared with like: generated answers with generated ones, hits with hits of the same kind,
whole times of answers that have the same length. Times of a case's first request never count.

Over all cases of a task a round of them is one measurement: how long its requests took, each relative to
what is usual for its case. A slow second of the machine slows all requests of a round, so they are not
independent samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from trimodal.regress.compare.findings import Finding, Limits, Verdict
from trimodal.regress.compare.significance import holm, least_p, mann_whitney, ratio_interval
from trimodal.regress.values import METRICS, Metric, Record

_FAMILIES = 2
# No test can find a difference with fewer.
MIN_SAMPLES = 3
# Differences of the medians, milliseconds, below which no user notices, however significant they are.
FLOOR_MS: dict[Metric, float] = {"ttft": 1.0, "tpot": 0.05, "total": 1.0, "heard": 1.0, "saw": 1.0}


# Times of a case, by round, in both runs.
_Pair = tuple[Mapping[int, float], Mapping[int, float]]


class _Group(NamedTuple):
    task: str
    metric: Metric
    cache: str


@dataclass(frozen=True)
class Latency:
    """One time in two runs. `case` is empty where all cases of the task are taken together.

    Attributes:
        before, after: medians in milliseconds; over several cases, medians of those.
        ratio, low, high: after over before with its 95 % interval.
        p: of no difference, corrected for all tests of the comparison.
        samples: (before, after) measurements; over several cases, rounds.
    """

    case: str
    task: str
    metric: Metric
    cache: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    p: float
    samples: tuple[int, int]
    verdict: Verdict | None = None

    @property
    def name(self) -> str:
        """Of the case or the group; hits are named."""
        name = self.case or f"all {self.task}"
        return f"{name} ({self.cache})" if self.cache else name


def compare_latencies(
    before: Mapping[str, Record], after: Mapping[str, Record], limits: Limits
) -> list[Latency]:
    """All times that both runs have, groups first.

    Tests of the groups and those of the cases are corrected (Holm) apart, each for half of alpha: the few
    tests of groups, which see most, need not pay for the many of cases.
    """
    strata: dict[_Group, dict[str, _Pair]] = defaultdict(dict)
    for case in before.keys() & after.keys():
        old, new = before[case], after[case]
        for metric in METRICS:
            was, now = _samples(old, metric), _samples(new, metric)
            for cache in was.keys() & now.keys():
                if min(len(was[cache]), len(now[cache])) < MIN_SAMPLES:
                    continue
                if metric == "total" and _length(old, cache) != _length(new, cache):
                    continue  # a longer answer takes longer: ttft and tpot tell
                strata[_Group(old.task, metric, cache)][case] = was[cache], now[cache]
    ordered = sorted(strata.items())
    groups = [_latency("", group, list(cases.values())) for group, cases in ordered if len(cases) > 1]
    alone = [
        _latency(case, group, [pair]) for group, cases in ordered for case, pair in sorted(cases.items())
    ]
    return [_judged(one, limits) for family in (groups, alone) for one in _corrected(family)]


def _corrected(family: Sequence[Latency]) -> list[Latency]:
    values = holm([one.p for one in family])
    return [replace(one, p=min(1.0, _FAMILIES * p)) for one, p in zip(family, values, strict=True)]


def findings(latencies: list[Latency]) -> list[Finding]:
    """Those that are worse or better."""
    return [
        Finding(
            one.name,
            one.metric,
            one.verdict,
            f"{one.before:.2f} ms",
            f"{one.after:.2f} ms",
            f"{one.ratio:.2f} times, 95 % {one.low:.2f} to {one.high:.2f}",
            one.p,
        )
        for one in latencies
        if one.verdict
    ]


def too_few(latencies: list[Latency], alpha: float) -> int:
    """Counted requests a case that a change in a single case needs to be seen; 0: there are enough."""
    cases = [one for one in latencies if one.case]
    tests = _FAMILIES * len(cases)
    if not cases or min(least_p(*one.samples) for one in cases) * tests < alpha:
        return 0
    repeat = MIN_SAMPLES
    while least_p(repeat, repeat) * tests >= alpha:
        repeat += 1
    return repeat


def _latency(case: str, group: _Group, pairs: Sequence[_Pair]) -> Latency:
    old, new = (float(np.median([np.median(list(pair[side].values())) for pair in pairs])) for side in (0, 1))
    if case:
        first, second = (list(side.values()) for side in pairs[0])
    else:
        first, second = _rounds(pairs)
    ratio, low, high = ratio_interval(first, second)
    p = mann_whitney(first, second)
    return Latency(case, *group, old, new, ratio, low, high, p, (len(first), len(second)))


def _rounds(pairs: Sequence[_Pair]) -> tuple[list[float], list[float]]:
    """How slow each round was: geometric mean over the cases of time by the case's usual time."""
    found: tuple[dict[int, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for pair in pairs:
        usual = float(np.median([value for side in pair for value in side.values()]))
        for rounds, side in zip(found, pair, strict=True):
            for number, value in side.items():
                rounds[number].append(np.log(value / usual))
    first, second = ([float(np.exp(np.mean(logs))) for logs in rounds.values()] for rounds in found)
    return first, second


def _judged(one: Latency, limits: Limits) -> Latency:
    if one.p >= limits.alpha or abs(one.after - one.before) < FLOOR_MS[one.metric]:
        return one
    most = 1 + limits.latency
    if one.ratio > most:
        return replace(one, verdict="worse")
    return replace(one, verdict="better") if one.ratio < 1 / most else one


def _samples(record: Record, metric: Metric) -> dict[str, dict[int, float]]:
    """Counted times by cache outcome and round, without those of refusals."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for number, (one, answer) in enumerate(zip(record.observations, record.responses, strict=True)):
        value: float | None = getattr(one, metric)
        if not one.first and not answer.error and value is not None and value > 0:
            found[one.cache][number] = value
    return found


def _length(record: Record, cache: str) -> float:
    """Median completion tokens."""
    return float(np.median([one.tokens for one in record.observations if one.cache == cache]))
