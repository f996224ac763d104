"""Predicts how much of an answer is still to come, from the lengths of recent answers.

Kaplan and Meier's estimate: answers that max_tokens or a client cut short are known to be longer than they
got, so they count as at risk up to there and no further.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection

_WINDOW = 256
_READY = 8  # complete answers before anything is predicted
_OWN = 32  # complete answers before a tier has a table of its own


class LifeTable:
    """Tells which share of the answers has ended by so many tokens; straight lines between their lengths."""

    def __init__(self, answers: Collection[tuple[int, bool]]) -> None:
        """`answers`: tokens, and whether it was complete."""
        self._tokens, self._ended = [0], [0.0]  # both ascending
        at_risk, going_on = len(answers), 1.0
        for tokens, complete in sorted(answers, key=lambda answer: (answer[0], not answer[1])):
            if complete:
                going_on *= 1 - 1 / at_risk
                self._tokens.append(tokens)
                self._ended.append(1 - going_on)
            at_risk -= 1

    def ended(self, tokens: int) -> float:
        """Share of the answers that are no longer than `tokens`."""
        at = bisect_right(self._tokens, tokens)
        if at == len(self._tokens):
            return self._ended[-1]
        low, high = self._ended[at - 1 : at + 1]
        before, after = self._tokens[at - 1 : at + 1]
        return low + (high - low) * (tokens - before) / (after - before)

    def left(self, made: int, rank: float) -> float:
        """Tokens that are still to come after `made`, at least 1: the quantile `rank` (0 to 1) of those that
        got so far; inf where no answer is known to end."""
        # On the line that `ended` is on, so never before `made`, also in a gap between two lengths.
        share = 1 - (1 - self.ended(made)) * (1 - rank)
        at = bisect_right(self._ended, share)
        if at == len(self._ended):
            return math.inf
        low, high = self._ended[at - 1 : at + 1]
        before, after = self._tokens[at - 1 : at + 1]
        return max(1.0, before + (after - before) * (share - low) / (high - low) - made)


class AnswerLengths:
    """Keeps a life table of all answers and one of each tier's."""

    def __init__(self) -> None:
        self._answers: defaultdict[str, deque[tuple[int, bool]]] = defaultdict(lambda: deque(maxlen=_WINDOW))
        self._tables: dict[str, LifeTable] = {}  # drawn when they are asked for
        self._complete: Counter[str] = Counter()

    @property
    def ready(self) -> bool:
        """Whether anything can be predicted."""
        return self._complete[""] >= _READY

    def learn(self, tier: str, tokens: int, max_tokens: int, finished: bool) -> None:
        """Learns from an answer that ended by itself or at max_tokens, or (not `finished`) was cut."""
        for name in {"", tier}:
            self._answers[name].append((tokens, finished and tokens < max_tokens))
            self._complete[name] += finished
            self._tables.pop(name, None)

    def left(self, tier: str, made: int, max_tokens: int, rank: float) -> float:
        """Tokens still to come of an answer with `made`: the quantile `rank` (0 to 1) of what recent ones
        suggest, 1 to max_tokens - made; nan before enough is known.

        Ranks that spread evenly over the answers under way make the first of many to end come early, as
        it does; with the mean for each they would all end together.
        """
        if not self.ready:
            return math.nan
        name = tier if self._complete[tier] >= _OWN else ""
        if name not in self._tables:
            self._tables[name] = LifeTable(self._answers[name])
        return max(1.0, min(self._tables[name].left(made, rank), max_tokens - made))
