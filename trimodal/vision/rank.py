"""Turns logits into the k most probable labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import InvalidArgument, RequestError
from trimodal.paths import artefact_directory
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engines.protocol import Logits
from trimodal.vision.settings import RankSettings

Ranked = tuple[NDArray[np.object_], NDArray[np.float32]]


def softmax(logits: Logits) -> NDArray[np.float32]:
    """Probabilities float32[B, C] of logits float32[B, C], safe against overflow."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


class RankStep:
    """Turns logits into the best labels and their scores."""

    def __init__(self, labels: Sequence[str], top_k: int) -> None:
        self._labels = np.array([label.encode() for label in labels], dtype=object)
        self.top_k = min(top_k, len(labels))

    @classmethod
    def open(cls, version: Path, settings: RankSettings) -> RankStep:
        """Opens the step with the labels of the classifier that `settings` names."""
        labels = read_classifier(artefact_directory(version, settings.classifier)).labels
        step = cls(labels, settings.top_k)
        step.rank([np.zeros((1, len(labels)), np.float32)])  # numpy loads parts of itself at first use
        return step

    def rank(self, requests: Sequence[Logits]) -> list[Ranked | RequestError]:
        """Labels and scores for each request, or why it is refused."""
        outcomes: list[Ranked | RequestError] = []
        for logits in requests:
            try:
                outcomes.append(self.rank_one(logits))
            except RequestError as error:
                outcomes.append(error)
        return outcomes

    def rank_one(self, logits: Logits) -> Ranked:
        """Labels bytes[B, k] and scores float32[B, k] of logits float32[B, C], best first.

        Equals keep the labels' order. Raises InvalidArgument: other classes, or a logit that is not finite.
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
