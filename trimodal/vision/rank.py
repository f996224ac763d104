"""Turns logits into the k most probable labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import InvalidArgument


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities float32[B, C] of logits float32[B, C], safe against overflow."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


class Ranker:
    """Knows the labels and how many of them an answer holds."""

    def __init__(self, labels: Sequence[str], top_k: int) -> None:
        self._labels = np.array([label.encode() for label in labels], dtype=object)
        self.top_k = min(top_k, len(labels))

    def rank(self, logits: NDArray[np.float32]) -> tuple[NDArray[np.object_], NDArray[np.float32]]:
        """Labels bytes[B, k] and scores float32[B, k] of logits float32[B, C], best first.

        Equal scores keep the order of the labels.

        Raises:
            InvalidArgument: another number of classes, or a logit that is not finite.
        """
        if logits.ndim != 2 or logits.shape[1] != len(self._labels):
            raise InvalidArgument(
                f"logits: {len(self._labels)} numbers an image are needed, got shape {list(logits.shape)}"
            )
        if not np.isfinite(logits).all():
            raise InvalidArgument("logits: every number must be finite")
        scores = softmax(logits)
        best = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k]
        return self._labels[best], np.take_along_axis(scores, best, axis=1)
