"""Runs an engine once for all good requests of a batch, with one outcome a request.

A refused request never harms its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from trimodal.errors import RequestError
from trimodal.metrics import Metrics, counters
from trimodal.trace import note

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
Request = TypeVar("Request")
Item = TypeVar("Item")
Rows = TypeVar("Rows", bound="_Sliceable")


class _Sliceable(Protocol):
    def __getitem__(self: Rows, rows: slice, /) -> Rows: ...


class SharedRuns:
    """Runs one engine, and counts its runs and their items.

    Args:
        name: of the metrics. engine, items: what they count, in words. span: a run's name in a trace.
        outcomes: of an item beside "refused"; where there is one, all items of a run have it.

    Attributes:
        outcomes: a counter for each.
    """

    def __init__(
        self, metrics: Metrics, name: str, engine: str, items: str, *outcomes: str, span: str
    ) -> None:
        self._span = span
        self._done = outcomes if len(outcomes) == 1 else ()
        self._seconds = metrics.histogram(f"{name}_seconds", f"One run of {engine}", {}, SECONDS)
        sizes = f"{items} in one run of {engine}"
        self._batches = metrics.histogram(f"{name}_batch_size", sizes, {}, BATCHES)
        total = f"{name}_{items.lower()}_total"
        self.outcomes = counters(total, metrics, f"{items} by outcome", "outcome", (*outcomes, "refused"))

    def run(
        self,
        requests: Sequence[Request],
        size: Callable[[Request], int],
        read: Callable[[Request], list[Item]],
        engine: Callable[[list[Item]], Rows],
    ) -> list[Rows | RequestError]:
        """The rows of each request's items, or why it is refused.

        Args:
            size: how many items a request has. read: these, checked; may raise RequestError.
            engine: a row for each item, in order.
        """
        items: list[Item] = []
        outcomes: list[slice | RequestError] = []
        for request in requests:
            try:
                good = read(request)
            except RequestError as error:
                self.outcomes["refused"].increment(size(request))
                outcomes.append(error)
            else:
                outcomes.append(slice(len(items), len(items) + len(good)))
                items += good
        if not items:
            return [one for one in outcomes if isinstance(one, RequestError)]
        started = time.perf_counter()
        rows = engine(items)
        ended = time.perf_counter()
        self._seconds.observe(ended - started)
        self._batches.observe(len(items))
        note(self._span, started, ended)
        for outcome in self._done:
            self.outcomes[outcome].increment(len(items))
        return [one if isinstance(one, RequestError) else rows[one] for one in outcomes]
