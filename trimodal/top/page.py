"""Reads pages of metrics in Prometheus' text format, and what changed between two of them."""

from __future__ import annotations

import http.client
import math
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trimodal.errors import ServerError

MAX_BYTES = 32 << 20
# A label's value, or those that are meant; a name that is not given matches whatever it is.
Labels = Mapping[str, "str | Collection[str]"]


@dataclass(frozen=True)
class Page:
    """One look: `samples` by name, each with its labels; `at` in seconds of the monotonic clock."""

    at: float
    samples: Mapping[str, Mapping[frozenset[tuple[str, str]], float]]

    def has(self, name: str) -> bool:
        return name in self.samples

    def series(self, name: str, labels: Labels) -> Iterator[tuple[Mapping[str, str], float]]:
        """Labels and value of each series of that name that has these labels."""
        for key, value in self.samples.get(name, {}).items():
            found = dict(key)
            if all(_matches(found.get(label, ""), wanted) for label, wanted in labels.items()):
                yield found, value

    def values(self, name: str, label: str) -> list[str]:
        """The values that a label has in the series of that name, sorted."""
        return sorted({found[label] for found, _ in self.series(name, {}) if label in found})

    def total(self, name: str, **labels: str | Collection[str]) -> float | None:
        """The sum of the series; None where there is none."""
        found = [value for _, value in self.series(name, labels) if not math.isnan(value)]
        return sum(found) if found else None

    def most(self, name: str, **labels: str | Collection[str]) -> float | None:
        """The largest of the series, as of a share of each version; None where there is none."""
        return max((value for _, value in self.series(name, labels) if not math.isnan(value)), default=None)


def read_page(text: str, at: float) -> Page:
    """Raises: ServerError where it is no such text."""
    from prometheus_client.parser import text_string_to_metric_families

    samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name
                if family.type == "counter" and name.startswith("nv_"):
                    name = name.removesuffix("_total")  # the parser's: Triton's own counters have none
                samples.setdefault(name, {})[frozenset(sample.labels.items())] = float(sample.value)
    except (ValueError, KeyError, IndexError) as error:
        raise ServerError(f"its answer is no page of metrics ({error})") from None
    return Page(at, samples)


def fetch(url: str, *, timeout: float, key: str = "") -> Page:
    """Fetches the page at `url`; `key` goes along as a bearer token.

    Raises: ServerError, a few words on why there is none.
    """
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            at = time.monotonic()
            body = response.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        wants_key = error.code in (401, 403)
        raise ServerError(f"HTTP {error.code}{', it wants an operator’s key' if wants_key else ''}") from None
    except urllib.error.URLError as error:
        raise ServerError(_why(error.reason)) from None
    except OSError as error:
        raise ServerError(_why(error)) from None
    except http.client.HTTPException:  # as of a gRPC port, whose bytes it quotes
        raise ServerError("its answer is not HTTP, or was cut off") from None
    if len(body) > MAX_BYTES:
        raise ServerError(f"its page has more than {MAX_BYTES} bytes")
    return read_page(body.decode(errors="replace"), at)


def _why(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(reason)[:1].lower() + str(reason)[1:]


@dataclass(frozen=True)
class Change:
    """From one page to a later one of the same server. Everything is None where nothing is known."""

    before: Page
    after: Page

    @property
    def seconds(self) -> float:
        """0 where one look was all there was so far."""
        return self.after.at - self.before.at

    def rate(self, name: str, **labels: str | Collection[str]) -> float | None:
        """How much a counter grew each second, over all series with these labels."""
        grown = [value for _, value in self._grown(name, labels)]
        return sum(grown) / self.seconds if grown and self.seconds else None

    def ratio(
        self, part: str, whole: str, part_labels: Labels | None = None, whole_labels: Labels | None = None
    ) -> float | None:
        """The growth of one counter as a share of another's; None where that stood still."""
        above, below = self.rate(part, **(part_labels or {})), self.rate(whole, **(whole_labels or {}))
        return (above or 0.0) / below if below else None

    def mean(self, histogram: str, **labels: str | Collection[str]) -> float | None:
        """The mean of what was observed meanwhile."""
        return self.ratio(f"{histogram}_sum", f"{histogram}_count", labels, labels)

    def quantile(self, q: float, histogram: str, **labels: str | Collection[str]) -> float | None:
        """A quantile (0 to 1) of what was observed meanwhile, as Prometheus' histogram_quantile has it."""
        buckets: dict[float, float] = {}
        for found, value in self._grown(f"{histogram}_bucket", labels):
            bound = float(found["le"])
            buckets[bound] = buckets.get(bound, 0.0) + value
        return histogram_quantile(q, buckets)

    def _grown(self, name: str, labels: Labels) -> Iterator[tuple[Mapping[str, str], float]]:
        earlier = self.before.samples.get(name, {})
        for found, value in self.after.series(name, labels):
            # A series that was not there began at zero, and so did one that fell: its server was restarted.
            was = earlier.get(frozenset(found.items()), 0.0)
            yield found, value - was if value >= was else value


def histogram_quantile(q: float, buckets: Mapping[float, float]) -> float | None:
    """The quantile of a histogram, taken as evenly spread within a bucket.

    Args:
        buckets: upper bound → observations up to it (cumulative), with the bound of infinity.

    Returns:
        None without observations; the largest finite bound where the quantile lies above it.
    """
    bounds = sorted(buckets)
    if len(bounds) < 2 or not math.isinf(bounds[-1]) or not buckets[bounds[-1]]:
        return None
    rank = q * buckets[bounds[-1]]
    below, counted = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank:
            if math.isinf(bound):
                return below
            if below == 0.0 and bound <= 0:
                return bound
            return below + (bound - below) * (rank - counted) / max(buckets[bound] - counted, 1e-12)
        below, counted = bound, buckets[bound]
    return None  # not reached: the last bound holds all


def _matches(value: str, wanted: str | Collection[str]) -> bool:
    return value == wanted if isinstance(wanted, str) else value in wanted
