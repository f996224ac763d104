"""Predicts how much of an answer is still to come, from the lengths of recent answers.

A life table: answers that max_tokens or a client cut short are known to be longer than they got, so
they count as at risk up to there and no further.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable

_WINDOW = 256
_READY = 8  # complete answers before anything is predicted
_OWN = 32  # complete answers before a tier has a table of its own
_STALE = 16  # new answers that make a table be drawn anew


def _edges() -> list[int]:
    """Token counts: each up to 16, then each 12 % further, to the longest answer that settings allow."""
    edges = list(range(17))
    while edges[-1] < 1 << 20:
        edges.append(math.ceil(edges[-1] * 1.12))
    return edges


EDGES = _edges()


class LifeTable:
    """Tells which share of the answers is longer than so many tokens. Straight lines between `EDGES`."""

    def __init__(self, answers: Iterable[tuple[int, bool]]) -> None:
        """`answers`: tokens, and whether it was complete."""
        ended, cut = [0] * len(EDGES), [0] * len(EDGES)
        at_risk = 0
        for tokens, complete in answers:
            bucket = bisect_left(EDGES, max(1, min(tokens, EDGES[-1])))
            (ended if complete else cut)[bucket] += 1
            at_risk += 1
        self._longer = [1.0]
        for bucket in range(1, len(EDGES)):
            # Those cut short within a bucket were at risk for about half of it.
            exposed = at_risk - cut[bucket] / 2
            hazard = min(1.0, ended[bucket] / exposed) if exposed > 0 else 0.0
            self._longer.append(self._longer[-1] * (1 - hazard))
            at_risk -= ended[bucket] + cut[bucket]
        self._shorter = [1 - share for share in self._longer]  # ascending, as bisect wants it

    def longer(self, tokens: float) -> float:
        """Share of the answers longer than `tokens`."""
        above = min(bisect_right(EDGES, tokens), len(EDGES) - 1)
        left, right = EDGES[above - 1], EDGES[above]
        part = min(1.0, (tokens - left) / (right - left))
        return self._longer[above - 1] + (self._longer[above] - self._longer[above - 1]) * part

    def left(self, made: int, rank: float) -> float:
        """Tokens that are still to come after `made`, at least 1: the quantile `rank` (0 to 1) of those that
        got so far; inf where no answer is known to end."""
        target = 1 - self.longer(made) * (1 - rank)
        above = bisect_left(self._shorter, target)
        if target >= self._shorter[-1] or above == len(EDGES):
            return math.inf
        above = max(1, above)
        low, high = self._shorter[above - 1], self._shorter[above]
        part = (target - low) / (high - low) if high > low else 1.0
        return max(1.0, EDGES[above - 1] + (EDGES[above] - EDGES[above - 1]) * part - made)


class AnswerLengths:
    """Keeps a life table of all answers and one of each tier's."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[tuple[int, bool]]] = {}
        self._tables: dict[str, LifeTable] = {}
        self._complete: dict[str, int] = {}
        self._fresh: dict[str, int] = {}

    @property
    def ready(self) -> bool:
        """Whether anything can be predicted."""
        return self._complete.get("", 0) >= _READY

    def learn(self, tier: str, tokens: int, max_tokens: int, finished: bool) -> None:
        """Learns from an answer that ended by itself or at max_tokens, or (not `finished`) was cut."""
        for name in ("", tier) if tier else ("",):
            answers = self._answers.setdefault(name, deque(maxlen=_WINDOW))
            answers.append((tokens, finished and tokens < max_tokens))
            self._complete[name] = self._complete.get(name, 0) + finished
            self._fresh[name] = self._fresh.get(name, 0) + 1
            if self._fresh[name] >= min(_STALE, self._complete[name]):
                self._tables.pop(name, None)

    def left(self, tier: str, made: int, max_tokens: int, rank: float) -> float:
        """Tokens still to come of an answer with `made`: the quantile `rank` (0 to 1) of what recent ones
        suggest, 1 to max_tokens - made; nan before enough is known.

        Ranks that spread evenly over the answers under way make the first of many to end come early, as
        it does; with the mean for each they would all end together.
        """
        if not self.ready:
            return math.nan
        table = self._table(tier if self._complete.get(tier, 0) >= _OWN else "")
        return max(1.0, min(table.left(made, rank), max_tokens - made))

    def _table(self, name: str) -> LifeTable:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = LifeTable(self._answers[name])
            self._fresh[name] = 0
        return table
