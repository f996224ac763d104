"""Decodes a batch greedily on the host: token by token, each row to its own end.

A row's tokens do not depend on its neighbours; rows share the matrix products only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.graphs import (
    Floats,
    Scores,
    StepGraphs,
    Steps,
    Tokens,
    log_probabilities,
    without,
)
from trimodal.speech.whisper.rows import Row, Rules


class Greedy:
    """How a batch of rows takes its tokens."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def decode(
        self, rows: list[Row], decoding: Steps, scores: Scores, attention: Floats, temperature: float
    ) -> None:
        """Token by token until every row has ended; those that have are dropped once they are half."""
        alive = list(rows)
        longest = self._rules.longest(decoding.length)
        for step in range(longest):
            made = self._choose(alive, scores, temperature, first=step == 0)
            for index, row in enumerate(alive):
                if not row.ended:
                    row.attention.append(attention[index])
                    row.take(*made[index], end=self._rules.end)
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
        banned = self._rules.not_first if first else self._rules.never
        if temperature:  # The largest of logits and such noise is a draw from their softmax.
            allowed = without(scores.numpy(), banned)
            noise = [row.draws.gumbel(size=allowed.shape[1]) for row in rows]
            tokens = (allowed / np.float32(temperature) + np.array(noise, np.float32)).argmax(1)
            chances = log_probabilities(allowed, tokens)
        else:
            tokens, chances = scores.best(banned)
        return list(zip(tokens.tolist(), chances.tolist(), strict=True))


class HostGraphs:
    """As graphs.Graphs, over graphs that run a step at a time: the host chooses every token."""

    def __init__(self, graphs: StepGraphs, rules: Rules) -> None:
        self._graphs = graphs
        self._greedy = Greedy(rules)

    def start(self, features: Features) -> HostDecoding:
        """As in graphs.Graphs."""
        return HostDecoding(self._graphs.start(features), self._greedy)

    def close(self) -> None:
        """As in graphs.Graphs."""
        self._graphs.close()


class HostDecoding:
    """As graphs.Decoding."""

    def __init__(self, steps: Steps, greedy: Greedy) -> None:
        self._steps = steps
        self._greedy = greedy
        self._opening: list[Floats] = []  # its attention
        self._scores: Scores | None = None

    def open(self, tokens: Tokens, at: int) -> Floats:
        """As in graphs.Decoding; another run for what comes after `at`."""
        self._scores, attention = self._steps.step(tokens[:, : at + 1])
        logits = self._scores.numpy()
        self._opening.append(attention[:, :, at:])
        if at + 1 < tokens.shape[1]:
            self.follow(tokens[:, at + 1 :])
        return logits

    def follow(self, tokens: Tokens) -> None:
        """As in graphs.Decoding."""
        self._scores, attention = self._steps.step(tokens)
        self._opening.append(attention)

    def write(self, rows: Sequence[Row], temperature: float) -> None:
        """As in graphs.Decoding."""
        assert self._scores is not None, "nothing was opened"
        *before, attention = self._opening
        for index, row in enumerate(rows):
            row.attention += [weights[index] for weights in before]
        self._greedy.decode(list(rows), self._steps, self._scores, attention, temperature)
