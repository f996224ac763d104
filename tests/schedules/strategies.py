"""Chooses the thread that goes on.

Random walks find what one of many orders shows. PCT (Burckhardt et al., "A randomized scheduler with
probabilistic guarantees of finding bugs", ASPLOS 2010) finds what needs a few preemptions at the right
moments: among n threads and k points, a race that needs d of them with probability at least 1 / (n k^(d-1)).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol


class Strategy(Protocol):
    """`stalls`: probability that the clock jumps to the next deadline though threads could go on."""

    stalls: float

    def began(self, task: Any) -> None:
        """A thread is there now."""

    def choose(self, ready: Sequence[Any], current: Any) -> Any:
        """Which of at least two threads goes on."""


class Walk:
    """Anybody is as likely as anybody else, but for the present one, which goes on with `stay`."""

    def __init__(self, draw: random.Random, stay: float) -> None:
        self._random, self._stay = draw.random, stay
        self.stalls = draw.choice([0.0, 0.0, 0.002, 0.02])

    def began(self, task: Any) -> None:
        """Nothing to note."""

    def choose(self, ready: Sequence[Any], current: Any) -> Any:
        if self._stay and current in ready and self._random() < self._stay:
            return current
        return ready[int(self._random() * len(ready))]


class Pct:
    """The thread of the highest priority goes on; at a few drawn points its priority becomes the lowest."""

    def __init__(self, draw: random.Random, depth: int, points: int) -> None:
        self._draw = draw
        self._changes = sorted((draw.randrange(points) for _ in range(depth - 1)), reverse=True)
        self._lowest = 0.0
        self._at = 0
        self.stalls = draw.choice([0.0, 0.0, 0.002])

    def began(self, task: Any) -> None:
        task.priority = 1 + self._draw.random()

    def choose(self, ready: Sequence[Any], current: Any) -> Any:
        self._at += 1
        if self._changes and self._at >= self._changes[-1]:
            self._changes.pop()
            self._lowest -= 1
            current.priority = self._lowest
        return max(ready, key=lambda task: task.priority)


def strategy_of(draw: random.Random) -> Strategy:
    """A strategy, as drawn: as many walks as PCT, of depth 2 to 8 within the first 30 to 10,000 points."""
    kind = draw.random()
    if kind < 0.5:
        return Walk(draw, 0.0 if kind < 0.3 else draw.choice([0.5, 0.9, 0.98]))
    return Pct(draw, draw.choice([2, 3, 5, 8]), int(30 * 333 ** draw.random()))
