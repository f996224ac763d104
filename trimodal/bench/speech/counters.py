"""Reads what the recogniser did during a row from the server's metrics page before and after."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^(trimodal_speech_\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LE = re.compile(r'\ble="([^"]*)"')

# Name, and for a histogram's bucket its upper bound → sum over all other labels.
Page = Mapping[tuple[str, float | None], float]


@dataclass(frozen=True)
class Work:
    """Of the recogniser between two readings; `batch_most` is the bound of the highest bucket used."""

    windows: float
    seconds: float
    batch_mean: float
    batch_most: float


def parse_page(text: str) -> Page:
    """Parses the speech metrics of a page in Prometheus' text format."""
    page: dict[tuple[str, float | None], float] = defaultdict(float)
    for name, labels, value in _LINE.findall(text):
        bound = _LE.search(labels)
        page[name, float(bound[1]) if bound else None] += float(value)
    return page


def work_between(before: Page, after: Page) -> Work:
    """What was done between two readings of one server."""

    def grown(name: str, bound: float | None = None) -> float:
        key = (f"trimodal_speech_{name}", bound)
        return after.get(key, 0.0) - before.get(key, 0.0)

    batches = grown("batch_size_count")
    bounds = {bound for _, bound in after if bound is not None}
    # Buckets are cumulative: the first that holds all batches of this while bounds the largest.
    holding = (bound for bound in bounds if grown("batch_size_bucket", bound) >= batches)
    return Work(
        windows=grown("batch_size_sum"),
        seconds=grown("recognize_seconds_sum"),
        batch_mean=grown("batch_size_sum") / batches if batches else 0.0,
        batch_most=min(holding, default=math.inf) if batches else 0.0,
    )
