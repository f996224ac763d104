"""Reads what the recogniser did during a row from the server's metrics page before and after."""

from __future__ import annotations

import http.client
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trimodal.errors import ServerError

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


def parse_page(text: str) -> dict[tuple[str, float | None], float]:
    """Parses the speech metrics of a page in Prometheus' text format."""
    page: dict[tuple[str, float | None], float] = {}
    for name, labels, value in _LINE.findall(text):
        bound = _LE.search(labels)
        key = (name, float(bound.group(1)) if bound else None)
        page[key] = page.get(key, 0.0) + float(value)
    return page


def read_page(metrics_url: str) -> dict[tuple[str, float | None], float]:
    """Fetches the page at `host:port`.

    Raises:
        ServerError: it does not answer.
    """
    connection = http.client.HTTPConnection(metrics_url, timeout=5.0)
    try:
        connection.request("GET", "/metrics")
        return parse_page(connection.getresponse().read().decode())
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(f"the metrics page at {metrics_url} does not answer: {error}") from None
    finally:
        connection.close()


def work_between(before: Page, after: Page) -> Work:
    """What was done between two readings of one server."""

    def grown(name: str, bound: float | None = None) -> float:
        key = (f"trimodal_speech_{name}", bound)
        return after.get(key, 0.0) - before.get(key, 0.0)

    batches = grown("batch_size_count")
    bounds = sorted(
        bound for name, bound in after if name == "trimodal_speech_batch_size_bucket" and bound is not None
    )
    # Buckets are cumulative: the first that holds all batches of this while bounds the largest.
    most = next((bound for bound in bounds if grown("batch_size_bucket", bound) >= batches), math.inf)
    return Work(
        windows=grown("batch_size_sum"),
        seconds=grown("recognize_seconds_sum"),
        batch_mean=grown("batch_size_sum") / batches if batches else 0.0,
        batch_most=most if batches else 0.0,
    )
