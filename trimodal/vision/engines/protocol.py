"""Defines the contract of an image classifier's engine, pixels to logits, and opens one by name."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.vision.artefact import ClassifierArtefact
from trimodal.vision.settings import VisionSettings

Pixels = NDArray[np.uint8]
Logits = NDArray[np.float32]


class ImageClassifier(Protocol):
    """Scores batches of prepared images."""

    def classify(self, pixels: Pixels) -> Logits:
        """Logits float32[B, C] of pixels uint8[B, 3, H, W], RGB as decoded; the engine normalises them."""


def runtime_of(engine: str) -> str | None:
    """Returns the runtime that an engine's artefact must be built for; None: any."""
    return None if engine == "fake" else engine


def open_engine(artefact: ClassifierArtefact, settings: VisionSettings) -> ImageClassifier:
    """Opens the engine that `settings.engine` names. Raises ArtefactError: the runtime refuses the file."""
    engine: ImageClassifier = import_module(f"trimodal.vision.engines.{settings.engine}").open_engine(
        artefact, settings
    )
    return engine
