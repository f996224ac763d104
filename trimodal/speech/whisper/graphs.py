"""Defines the protocols of Whisper's graphs: audio in, texts out; or step by step, for a host that chooses.

Caches stay where the runtime computes; only tokens, choices and alignment are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.rows import Row

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]


class Scores(Protocol):
    """What each row's next token may be; valid until the next call on the decoding."""

    def best(self, banned: Tokens) -> tuple[Tokens, Floats]:
        """Each row's most probable token among those not banned, of equals the first.

        Args:
            banned: int64[n], the same for all rows; not all tokens.

        Returns:
            Tokens int64[rows]; their natural log-probabilities among the allowed ones, float32[rows].
        """

    def numpy(self) -> Floats:
        """Logits float32[rows, vocabulary] on the host, banned tokens with them; on a GPU a large copy."""


class Steps(Protocol):
    """A batch of rows that are decoded together; all have had the same number of tokens."""

    @property
    def length(self) -> int:
        """Tokens so far, of each row."""

    def step(self, tokens: Tokens) -> tuple[Scores, Floats]:
        """Appends tokens int64[rows, n].

        Returns:
            Scores after the last, which the next call may overwrite; alignment
            float32[rows, heads, n, positions], which stays.
        """

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows but these, whose numbers become 0, 1, …"""


class StepGraphs(Protocol):
    """Encoder and decoder of one model, opened, for a host that chooses each token."""

    def start(self, features: Features) -> Steps:
        """Encodes features float32[rows, mel, frames]; all its rows, without tokens yet."""

    def close(self) -> None:
        """Frees weights and buffers."""


class Decoding(Protocol):
    """A batch of rows whose texts are written together."""

    def open(self, tokens: Tokens, at: int) -> Floats:
        """Appends the first tokens int64[rows, n]; attention is kept from token `at` on.

        Returns:
            Logits float32[rows, vocabulary] after token `at`, on the host.
        """

    def follow(self, tokens: Tokens) -> None:
        """Appends tokens int64[rows, n] whose attention is kept."""

    def write(self, rows: Sequence[Row], temperature: float) -> None:
        """Decodes each row to its end or its bound; puts tokens and attention into it.

        Temperature 0 takes the most probable token, above it one is drawn by the row's own generator.
        """


class Graphs(Protocol):
    """Encoder and decoder of one model, opened."""

    def start(self, features: Features) -> Decoding:
        """Encodes features float32[rows, mel, frames]; a decoding of all its rows, without tokens yet.

        A runtime with one set of buffers may end the decoding before it by this.
        """

    def close(self) -> None:
        """Frees weights and buffers."""


def layer_names(*patterns: str, layers: int) -> list[str]:
    """The patterns with the number of each layer in turn."""
    return [pattern.format(layer) for layer in range(layers) for pattern in patterns]


class HostScores:
    """Scores of one step on the host, from logits that are brought to the host once somebody asks."""

    def __init__(self, fetch: Callable[[], Floats]) -> None:
        """`fetch` gives the logits float32[rows, vocabulary]; it is called at most once."""
        self.numpy = cache(fetch)

    def best(self, banned: Tokens) -> tuple[Tokens, Floats]:
        """As in Scores."""
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
