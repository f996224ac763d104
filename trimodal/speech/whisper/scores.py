"""Finds the most probable token of each row on the host; engines/tensorrt/scores.py does on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from trimodal.speech.whisper.graphs import Floats, Tokens


class HostScores:
    """Scores of one step, from logits that are brought to the host once somebody asks."""

    def __init__(self, fetch: Callable[[], Floats]) -> None:
        """`fetch` gives the logits float32[rows, vocabulary]; it is called at most once."""
        self.numpy = cache(fetch)

    def best(self, banned: Tokens) -> tuple[Tokens, Floats]:
        """As in graphs.Scores."""
        allowed = without(self.numpy(), banned)
        tokens = allowed.argmax(1)
        return tokens, log_probabilities(allowed, tokens)


def without(logits: Floats, banned: Tokens) -> Floats:
    """A copy of logits float32[rows, vocabulary], -inf at the banned tokens."""
    allowed = logits.copy()
    allowed[:, banned] = -np.inf
    return allowed


def log_probabilities(logits: Floats, tokens: Tokens) -> Floats:
    """Natural log-probability float32[rows] of each row's token int64[rows] in the logits' softmax."""
    return np.asarray(logits[np.arange(len(tokens)), tokens] - log_sum(logits), np.float32)


def log_sum(logits: Floats) -> Floats:
    """Logarithm of the sum of exponentials of each row: float32[rows]."""
    peaks = logits.max(1)
    return np.asarray(peaks + np.log(np.exp(logits - peaks[:, None]).sum(1)), np.float32)
