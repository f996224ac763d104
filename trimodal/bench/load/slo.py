"""Reads service level objectives as text: "ttft_ms<=500,itl_ms<=60,p99_ms<=2000,error_rate<=0.01".

A plain metric bounds each request, and a request that keeps all of these is a good one (goodput: good
requests a second); `itl_ms` and `lag_ms` bound every gap and every word of it. With a statistic in front, as
p99_, mean_ or max_, it bounds the whole run; so does `error_rate`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trimodal.bench.load.records import METRICS, OK, Record
from trimodal.errors import SettingsError

# Name in an SLO → metric of a record.
NAMES: Mapping[str, str] = {
    "ms": "latency",
    "latency_ms": "latency",
    "ttft_ms": "ttft",
    "itl_ms": "itl",
    "tpot_ms": "tpot",
    "lag_ms": "lag",
}
ERROR_RATE = "error_rate"
KNOWN = (*NAMES, ERROR_RATE)
_BOUND = re.compile(r"(?:(?P<statistic>p\d{1,2}(?:\.\d+)?|mean|max)_)?(?P<name>\w+?)\s*<=?\s*(?P<limit>\S+)")


@dataclass(frozen=True)
class Bound:
    """One objective.

    Attributes:
        metric: of METRICS, or "error_rate".
        limit: milliseconds; a share of requests for the error rate.
        statistic: "p99", "mean", "max" of the whole run; empty: of each request.
    """

    metric: str
    limit: float
    statistic: str = ""

    @property
    def text(self) -> str:
        if self.metric == ERROR_RATE:
            return f"error_rate<={self.limit:g}"
        name = "ms" if self.metric == "latency" and self.statistic else f"{self.metric}_ms"
        return f"{self.statistic and self.statistic + '_'}{name}<={self.limit:g}"

    @property
    def of_each(self) -> bool:
        """Whether it bounds each request rather than the run."""
        return not self.statistic and self.metric != ERROR_RATE

    def met_by(self, record: Record) -> bool:
        """Whether every value that the request has keeps the limit."""
        return all(1e3 * value <= self.limit for value in METRICS[self.metric](record))


@dataclass(frozen=True)
class Slo:
    """All objectives; without any, every answered request is good."""

    bounds: tuple[Bound, ...] = ()

    @property
    def text(self) -> str:
        return ",".join(bound.text for bound in self.bounds)

    @property
    def of_requests(self) -> tuple[Bound, ...]:
        return tuple(bound for bound in self.bounds if bound.of_each)

    @property
    def of_run(self) -> tuple[Bound, ...]:
        return tuple(bound for bound in self.bounds if not bound.of_each)

    def good(self, record: Record) -> bool:
        """Whether the request was answered and keeps all bounds of requests."""
        return record.outcome == OK and all(bound.met_by(record) for bound in self.of_requests)


NO_SLO = Slo()


def parse_slo(text: str) -> Slo:
    """Reads bounds with commas between. Raises: SettingsError: names the bound and lists what is known."""
    return Slo(tuple(_bound(part.strip()) for part in text.split(",") if part.strip()))


def _bound(text: str) -> Bound:
    found = _BOUND.fullmatch(text)
    if not found:
        raise SettingsError(f"--slo {text}: a form as ttft_ms<=500 or p99_ms<=2000 is needed")
    statistic, name = found["statistic"] or "", found["name"]
    if statistic.startswith("p"):
        statistic = f"p{float(statistic[1:]):g}"  # "p99.90" is "p99.9", as the figures are called
    if name not in KNOWN:
        raise SettingsError(f"--slo {text}: '{name}' is no metric: known are {', '.join(KNOWN)}")
    try:
        limit = float(found["limit"])
    except ValueError:
        limit = math.nan
    if not (math.isfinite(limit) and limit >= 0):
        raise SettingsError(f"--slo {text}: '{found['limit']}' is no limit: a number from 0 up is needed")
    if name == ERROR_RATE:
        if statistic or limit > 1:
            raise SettingsError(f"--slo {text}: error_rate is a share of the whole run: error_rate<=0.01")
        return Bound(ERROR_RATE, limit)
    return Bound(NAMES[name], limit, statistic)
