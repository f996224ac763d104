"""What the semantic layer needs of an embedding model, and a scripted one for tests."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np

from trimodal.cache.values import Vector


class Embedder(Protocol):
    """Texts to vectors. Called from several threads at once."""

    @property
    def checkpoint(self) -> str:
        """SHA-256 of the embedding model's checkpoint: thresholds are calibrated for one."""

    def embed(self, text: str) -> Vector:
        """float32[d] of unit length. Raises RequestError or any other exception when there is none."""


class FakeEmbedder:
    """A unit vector that the text's words decide: texts with the same words are alike, in whatever order."""

    checkpoint = "fake"

    def __init__(self, dimension: int = 64) -> None:
        self._dimension = dimension

    def embed(self, text: str) -> Vector:
        vector = np.full(self._dimension, 1e-3, np.float32)
        for word in text.lower().split():
            vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % self._dimension] += 1
        return (vector / np.linalg.norm(vector)).astype(np.float32)
