"""Says when requests are due: closed loops as a number of clients, open loops as times in seconds.

An open loop sends when a request is due, however many are unanswered; a closed one asks less as soon as the
server slows down, and so hides what a user would wait.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Closed:
    """So many clients that each send the next request when the last one is answered."""

    concurrency: int


Arrivals = Closed | Iterable[float]  # open: when each request is due, seconds from the run's begin, rising


def constant(rate: float) -> Iterator[float]:
    """Requests at even distances, `rate` a second."""
    number = 0
    while True:
        yield number / rate
        number += 1


def poisson(rate: float, seed: int = 0) -> Iterator[float]:
    """A Poisson process: `rate` a second on average, each request independent of the others."""
    rng = random.Random(seed)
    at = 0.0
    while True:
        at += rng.expovariate(rate)
        yield at
