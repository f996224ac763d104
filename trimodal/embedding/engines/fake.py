"""Fakes an embedder, for tests and for load tests of the serving path alone.

The same text gives the same unit vector, other texts unrelated ones: near in meaning is not near here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimodal.embedding.engines.protocol import Embedded
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.repository import FAKE


class FakeEmbedder:
    """Vectors seeded by a hash of the text; a token is a word."""

    specials = 0
    checkpoint = FAKE

    def __init__(self, dimension: int = 384, max_tokens: int = 254) -> None:
        self.dimension = dimension
        self.max_tokens = max_tokens

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Unit vectors float32[N, d] of `texts`."""
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for text, out in zip(texts, vectors, strict=True):
            words = text.split()[: self.max_tokens]
            digest = hashlib.sha256(" ".join(words).encode()).digest()
            drawn = np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(self.dimension)
            out[:] = drawn / np.linalg.norm(drawn)
        return Embedded(vectors, tuple(len(text.split()) for text in texts))


def open_engine(directory: Path, settings: EmbeddingSettings) -> FakeEmbedder:
    """Opens a fake with MiniLM's dimension; needs no artefact."""
    return FakeEmbedder()
