"""Decodes a batch greedily: token by token, each row to its own end.

A row's tokens do not depend on its neighbours; rows share the matrix products only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from trimodal.speech.whisper.graphs import Decoding, Floats, Scores, log_probabilities, without

SEED = 0


@dataclass(slots=True)
class Row:
    """What one row of a batch has written.

    Attributes:
        most_tokens: its bound.
        tokens, chances: written, without the end token, and with which probability among the allowed ones.
        log_probability: sum over all of them and the end token.
        attention: float32[heads, n, positions] of every run of the decoder that concerns the text.
    """

    most_tokens: int
    log_probability: float = 0.0
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    attention: list[Floats] = field(default_factory=list)
    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))
    ended: bool = False

    def take(self, token: int, log_probability: float, *, end: int) -> None:
        """Appends a token; the row has ended with the last that its length allows, or with <|endoftext|>."""
        self.log_probability += log_probability
        if token != end:
            self.tokens.append(token)
            self.chances.append(math.exp(log_probability))
        self.ended = token == end or len(self.tokens) >= self.most_tokens


class Greedy:
    """Which tokens may be taken, and how a batch of rows takes them."""

    def __init__(self, *, end: int, never: Iterable[int], not_first: Iterable[int], positions: int) -> None:
        """`never` may not be made at all, `not_first` not as the first; `positions` hold prompt and text."""
        self._end = end
        self._never = np.array(sorted(set(never)), np.int64)
        self._not_first = np.array(sorted({*self._never.tolist(), *not_first}), np.int64)
        self._positions = positions

    def decode(
        self, rows: list[Row], decoding: Decoding, scores: Scores, attention: Floats, temperature: float
    ) -> None:
        """Token by token until every row has ended; those that have are dropped once they are half."""
        alive = list(rows)
        longest = min(self._positions // 2, self._positions - decoding.length)
        for step in range(longest):
            made = self._choose(alive, scores, temperature, first=step == 0)
            for index, row in enumerate(alive):
                if not row.ended:
                    row.attention.append(attention[index])
                    row.take(*made[index], end=self._end)
            going = [index for index, row in enumerate(alive) if not row.ended]
            if not going or step + 1 == longest:
                return
            if len(going) * 2 <= len(alive):
                decoding.keep(going)
                alive, made = [alive[index] for index in going], [made[index] for index in going]
            scores, attention = decoding.step(np.array([[token] for token, _ in made], np.int64))

    def _choose(
        self, rows: list[Row], scores: Scores, temperature: float, *, first: bool
    ) -> list[tuple[int, float]]:
        """Each row's next token, and its log-probability among those that may be made."""
        banned = self._not_first if first else self._never
        if temperature:  # The largest of logits and such noise is a draw from their softmax.
            allowed = without(scores.numpy(), banned)
            noise = [row.draws.gumbel(size=allowed.shape[1]) for row in rows]
            tokens = (allowed / np.float32(temperature) + np.array(noise, np.float32)).argmax(1)
            chances = log_probabilities(allowed, tokens)
        else:
            tokens, chances = scores.best(banned)
        return list(zip(tokens.tolist(), chances.tolist(), strict=True))
