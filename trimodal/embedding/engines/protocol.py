"""Defines the contract of a text embedder, and opens one by name.

The service has checked limits and UTF-8; the engine cuts a text to the model's longest sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.embedding.settings import EmbeddingSettings

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Embedded:
    """Unit vectors float32[N, d], and for each text its tokens before it was cut (specials not counted)."""

    vectors: Vectors
    tokens: tuple[int, ...]

    def __getitem__(self, rows: slice) -> Embedded:
        return Embedded(self.vectors[rows], self.tokens[rows])


class TextEmbedder(Protocol):
    """Turns texts into vectors of length 1 whose dot product is their cosine.

    Attributes:
        checkpoint: SHA-256 of what it was built from; "fake".
    """

    checkpoint: str

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""

    @property
    def max_tokens(self) -> int:
        """Tokens of a text that count (specials not counted); what follows them is cut off."""

    @property
    def specials(self) -> int:
        """Tokens that are put around each text."""

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds `texts`, in order."""


def open_engine(directory: Path, settings: EmbeddingSettings) -> TextEmbedder:
    """Opens the engine that `settings.engine` names. Raises ArtefactError: `directory` does not fit it."""
    engine: TextEmbedder = import_module(f"trimodal.embedding.engines.{settings.engine}").open_engine(
        directory, settings
    )
    return engine
