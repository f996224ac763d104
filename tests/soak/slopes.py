"""Says of a series of values over time whether it is flat: a robust slope, its bound, and a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

HOUR = 3600.0
_BLOCKS = 40  # medians that a slope is fitted to: neighbours a few seconds apart are not independent
_FEWEST = 6
Word = Literal["flat", "grows", "step", "not shown", "short"]


@dataclass(frozen=True)
class Limit:
    """What the upper bound of a slope may be, an hour; `relative`: of the median, else in `unit`."""

    per_hour: float
    unit: str
    relative: bool = False


# Kind of series → limit. 24 hours of it are: 240 MiB a process, 480 MiB altogether, 24 threads …
LIMITS: Mapping[str, Limit] = {
    "memory": Limit(10, "MiB"),  # resident, of one process
    "pss": Limit(20, "MiB"),  # of all processes, what they share counted once
    "threads": Limit(1, "threads"),
    "descriptors": Limit(1, "descriptors"),
    "shared memory": Limit(1, "MiB"),
    "regions": Limit(1, "regions"),
    "KV blocks": Limit(0.05, "of the pool"),
    "requests": Limit(2, "requests"),
    "p50": Limit(0.15, "ms", relative=True),
    "p95": Limit(0.30, "ms", relative=True),
    "p99": Limit(0.60, "ms", relative=True),
}


@dataclass(frozen=True)
class Series:
    """Values of one kind over time. Times in seconds from the run's begin, rising."""

    name: str
    kind: str
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Verdict:
    """What a series came to after its warm-up.

    Attributes:
        began: where the warm-up ended, seconds.
        first, last: medians of the first and last tenth.
        slope, low, high: an hour, with the 95 % interval, in the series' unit.
        limit: what `high` may be, an hour, in the series' unit.
        word: flat: `high` is within the limit. grows: it is not, and `low` is above 0. step: no slope, but
            `last` is above `first` by more than twice what the limit allows. not shown: the bounds are too
            far apart to tell. short: too few values, or a process that lived too short.
    """

    name: str
    kind: str
    began: float
    first: float
    last: float
    slope: float
    low: float
    high: float
    limit: float
    word: Word


def judge(series: Series, total: float) -> Verdict:
    """Fits the series after its warm-up: a third of the run, and of the process' own life.

    Args:
        total: length of the run, seconds.
    """
    times, values = np.asarray(series.times, float), np.asarray(series.values, float)
    began = max(total / 3, times[0] + (times[-1] - times[0]) / 3) if len(times) else total
    times, values = times[times >= began], values[times >= began]
    if len(times) < _FEWEST or times[-1] - times[0] < total / 6:
        last = float(values[-1]) if len(values) else 0.0
        return Verdict(series.name, series.kind, began, last, last, 0, 0, 0, 0, "short")
    tenth = max(1, len(values) // 10)
    limit = LIMITS[series.kind]
    allowed = limit.per_hour * (float(np.median(values)) if limit.relative else 1)
    slope, low, high = fit(times, values)
    first, last = (float(np.median(part)) for part in (values[:tenth], values[-tenth:]))
    word: Word = "flat" if high <= allowed else "grows" if low > 0 else "not shown"
    if word == "flat" and last - first > 2 * allowed * (times[-1] - times[0]) / HOUR:
        word = "step"  # a single one leaves the median of all slopes where it was
    return Verdict(series.name, series.kind, began, first, last, slope, low, high, allowed, word)


def fit(times: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Theil and Sen's slope an hour, and its 95 % interval, of medians of blocks of neighbours."""
    from scipy.stats import (
        theilslopes,
    )  # a second, at which every worker of the suite would collect this file

    count = min(_BLOCKS, len(times))
    at = [float(np.median(block)) for block in np.array_split(np.asarray(times, float), count)]
    middle = [float(np.median(block)) for block in np.array_split(np.asarray(values, float), count)]
    found = theilslopes(middle, at, 0.95)
    return tuple(HOUR * float(one) for one in (found.slope, found.low_slope, found.high_slope))  # type: ignore[return-value]


def loads(series: Sequence[Series], total: float) -> list[Series]:
    """Of processes that were replaced: a series for each name, one value a process, its median.

    A process that is too short to be judged by itself may still leave each successor larger.
    """
    found = []
    for kind, name in dict.fromkeys((one.kind, one.name.rpartition(" #")[0]) for one in series):
        same = [one for one in series if one.kind == kind and one.name.rpartition(" #")[0] == name]
        if len(same) >= _FEWEST and kind in ("memory", "threads", "descriptors"):
            times = [one.times[-1] for one in same]
            found.append(
                Series(f"{name}, load by load", kind, times, [float(np.median(one.values)) for one in same])
            )
    return found
