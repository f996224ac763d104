"""The contract of Whisper's graphs in some runtime: encode once, then tokens in, logits and attention out.

Caches stay where the runtime computes; only tokens, logits and alignment cross over. Which
tokens are taken, and what they mean, is the affair of who calls (greedy, graph_whisper).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.speech.features import Features

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]


class Decoding(Protocol):
    """A batch of rows that are decoded together; all have had the same number of tokens."""

    @property
    def length(self) -> int:
        """Tokens so far, of each row."""

    def step(self, tokens: Tokens) -> tuple[Floats, Floats]:
        """Appends tokens int64[rows, n].

        Returns:
            Logits float32[rows, vocabulary] after the last, which the next call may overwrite;
            alignment float32[rows, heads, n, positions], which stays.
        """

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows but these, whose numbers become 0, 1, …"""


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
