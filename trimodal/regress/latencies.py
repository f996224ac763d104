"""Compares the times of two runs: by case, and by task over all cases, with significance.

Like is compared with like: generated answers with generated ones, hits with hits of the same kind,
whole times of answers that have the same length. Times of a case's first request never count.

Over all cases of a task a round of them is one measurement: how long its requests took, each relative to
what is usual for its case. A slow second of the machine slows all requests of a round, so they are not
independent samples. The tests are of ranks, because latencies are skewed and have outliers.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from trimodal.errors import OperatorError
from trimodal.regress.values import METRICS, Finding, Metric, Record, Verdict

# Chance that a run without any change is called worse or better by its times.
ALPHA = 0.05
# With fewer on either side no difference is looked for.
_MIN_SAMPLES = 3
# Differences of the medians, milliseconds, below which no user notices, however significant they are.
FLOOR_MS: dict[Metric, float] = {"ttft": 1.0, "tpot": 0.05, "total": 1.0}
# Up to so many measurements together scipy's exact test is quick; above it the normal curve is close.
_MOST_EXACT = 60


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
        ratio: after over before.
        p: of no difference, corrected for all tests of the comparison.
        least: that so few measurements can have, not corrected.
    """

    case: str
    task: str
    metric: Metric
    cache: str
    before: float
    after: float
    ratio: float
    p: float
    least: float
    verdict: Verdict | None = None

    @property
    def name(self) -> str:
        """Of the case or the group; hits are named."""
        name = self.case or f"all {self.task}"
        return f"{name} ({self.cache})" if self.cache else name


def compare_latencies(
    before: Mapping[str, Record], after: Mapping[str, Record], tolerance: float
) -> list[Latency]:
    """All times that both runs have, groups first.

    Args:
        tolerance: share by which a time may grow or shrink.
    """
    strata: dict[_Group, dict[str, _Pair]] = defaultdict(dict)
    for case in before.keys() & after.keys():
        old, new = before[case], after[case]
        for metric in METRICS:
            was, now = _samples(old, metric), _samples(new, metric)
            for cache in was.keys() & now.keys():
                if min(len(was[cache]), len(now[cache])) < _MIN_SAMPLES:
                    continue
                if metric == "total" and _length(old, cache) != _length(new, cache):
                    continue  # a longer answer takes longer: ttft and tpot tell
                strata[_Group(old.task, metric, cache)][case] = was[cache], now[cache]
    ordered = sorted(strata.items())
    found = [_latency("", group, list(cases.values())) for group, cases in ordered if len(cases) > 1]
    for group, cases in ordered:
        found += [_latency(case, group, [pair]) for case, pair in sorted(cases.items())]
    corrected = holm([one.p for one in found])
    return [_judged(replace(one, p=p), tolerance) for one, p in zip(found, corrected, strict=True)]


def too_few(latencies: Sequence[Latency], requests: int) -> str:
    """Says that no change of a time could be found, and what it takes; empty: one could.

    Args:
        requests: counted ones of the case that has the fewest.
    """
    tests = len(latencies)
    if not tests and requests < _MIN_SAMPLES:
        return (
            f"times were not compared: that takes --repeat {_MIN_SAMPLES} of both runs, more to find a change"
        )
    if not tests or tests * min(one.least for one in latencies) < ALPHA:
        return ""
    repeat = next(number for number in itertools.count(1) if tests * _least(number, number) < ALPHA)
    return (
        f"no change of {tests} times could be found, however large: that takes --repeat {repeat} of both runs"
    )


def _least(first: int, second: int) -> float:
    """The least p of the Mann–Whitney test on so many values: all of one side are above all of the other."""
    return 2 / math.comb(first + second, first)


def findings(latencies: list[Latency]) -> list[Finding]:
    """Those that are worse or better."""
    return [
        Finding(
            one.name,
            one.metric,
            one.verdict,
            f"{one.before:.2f} ms",
            f"{one.after:.2f} ms",
            f"{one.ratio:.2f} times",
            one.p,
        )
        for one in latencies
        if one.verdict
    ]


def _latency(case: str, group: _Group, pairs: Sequence[_Pair]) -> Latency:
    old, new = (float(np.median([np.median(list(pair[side].values())) for pair in pairs])) for side in (0, 1))
    if case:
        first, second = (list(side.values()) for side in pairs[0])
    else:
        first, second = _rounds(pairs)
    ratio = float(np.median(second) / np.median(first))
    p, least = mann_whitney(first, second), _least(len(first), len(second))
    return Latency(case, *group, old, new, ratio, p, least)


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


def _judged(one: Latency, tolerance: float) -> Latency:
    if one.p >= ALPHA or abs(one.after - one.before) < FLOOR_MS[one.metric]:
        return one
    most = 1 + tolerance
    if one.ratio > most:
        return replace(one, verdict="worse")
    return replace(one, verdict="better") if one.ratio < 1 / most else one


def _samples(record: Record, metric: Metric) -> dict[str, dict[int, float]]:
    """Counted times by cache outcome and round, without those of refusals."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for number, one in enumerate(record.observations):
        value: float | None = getattr(one, metric)
        if number and not one.answer.error and value is not None and value > 0:
            found[one.cache][number] = value
    return found


def _length(record: Record, cache: str) -> float:
    """Median completion tokens."""
    return float(np.median([one.tokens for one in record.observations if one.cache == cache]))


def require_scipy() -> Any:
    """scipy.stats, which takes a second to import. Raises: OperatorError when it is not installed."""
    try:
        from scipy import stats
    except ImportError:
        raise OperatorError("comparing runs needs scipy: pip install 'trimodal[bench]'") from None
    return stats


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of the Mann–Whitney test: could both have come from one distribution?

    Exact for up to 60 values in all, if no two are equal.
    """
    both = [*first, *second]
    if len(set(both)) == 1:
        return 1.0
    exact = len(both) <= _MOST_EXACT and len(set(both)) == len(both)
    test = require_scipy().mannwhitneyu(first, second, method="exact" if exact else "asymptotic")
    return float(test.pvalue)


def fewer_successes(before: tuple[int, int], after: tuple[int, int]) -> float:
    """One-sided p of Fisher's exact test: that `after` has as few successes, or fewer, by chance.

    Args:
        before, after: (successes, of how many).
    """
    table = [[successes, of - successes] for successes, of in (after, before)]
    return float(require_scipy().fisher_exact(table, alternative="less").pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """Corrects p values for how many there are (Holm 1979): at most α are wrongly below α in all."""
    order = np.argsort(values)
    corrected = np.ones(len(values))
    steps = np.asarray(values)[order] * np.arange(len(values), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(value) for value in corrected]
