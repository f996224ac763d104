"""Defines the contract of an image classifier's engine, pixels to logits, and opens one by name."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.vision.artefact import ClassifierArtefact
from trimodal.vision.settings import ClassifySettings

Pixels = NDArray[np.uint8]
Logits = NDArray[np.float32]


class ImageClassifier(Protocol):
    """Scores batches of prepared images."""

    def classify(self, pixels: Pixels) -> Logits:
        """Logits float32[B, C] of pixels uint8[B, 3, H, W], RGB as decoded; the engine normalises them."""


# Engine → module with `open_engine`, and the runtime that its artefacts are for. Imported when opened.
ENGINES: dict[str, tuple[str, str | None]] = {
    "onnxruntime": ("trimodal.vision.engines.onnxruntime", "onnxruntime"),
    "fake": ("trimodal.vision.engines.fake", None),
}


def runtime_of(engine: str) -> str | None:
    """Returns the runtime that an engine's artefact must be built for; None: any."""
    return ENGINES[engine][1]


def open_engine(artefact: ClassifierArtefact, settings: ClassifySettings) -> ImageClassifier:
    """Opens the engine that `settings.engine` names, opened on `artefact`.

    Raises:
        ArtefactError: the runtime refuses the built file.
    """
    engine: ImageClassifier = import_module(ENGINES[settings.engine][0]).open_engine(artefact, settings)
    return engine
