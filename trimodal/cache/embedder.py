"""Embeds questions for the semantic layer through a Triton model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trimodal.cache.values import Vector
from trimodal.errors import InternalError, RequestError
from trimodal.repository import built_model
from trimodal.triton.calls import infer


class TritonEmbedder:
    """Calls the embedding model named `model`, whose vectors are of `checkpoint`."""

    def __init__(self, pb_utils: Any, model: str, checkpoint: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self.checkpoint = checkpoint

    def embed(self, text: str) -> Vector:
        """The vector float32[d] of `text`, of unit length.

        Raises:
            RequestError: with the model's own code; InternalError when what it sent is no direction.
        """
        inputs = {"text_input": np.array([[text.encode()]], dtype=object)}
        try:
            out = infer(self._pb_utils, self._model, inputs, ("embedding",), fields=("text_input",))
        except RequestError as error:
            raise type(error)(f"{self._model}: {error}") from None
        vector = np.asarray(out["embedding"], np.float32)
        length = float(np.linalg.norm(vector))
        if not (np.isfinite(length) and length > 0):
            raise InternalError(f"{self._model}: the embedding has no direction")
        # A copy: what Triton handed over lies in memory that it takes back.
        return (vector / length).astype(np.float32)


def embedder_checkpoint(llm: Path, model: str) -> str:
    """SHA-256 of the checkpoint behind the model `model` that lies beside the llm's; "fake" for a fake.

    Raises:
        OperatorError: see `built_model`.
    """
    return built_model(llm, model, parameter="embedder", task="embedding").checkpoint


class Embedder(Protocol):
    """Texts to vectors. Called from several threads at once."""

    @property
    def checkpoint(self) -> str:
        """SHA-256 of the embedding model's checkpoint: vectors of two are never compared."""

    def embed(self, text: str) -> Vector:
        """float32[d] of unit length. Raises RequestError or any other exception when there is none."""
