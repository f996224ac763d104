"""Fakes a classifier, for tests and for load tests of the serving path alone.

Its answer depends on the pixels in a way that a test can foresee.
"""

from __future__ import annotations

import time

import numpy as np

from trimodal.vision.artefact import ClassifierArtefact
from trimodal.vision.engines.protocol import Logits, Pixels
from trimodal.vision.settings import VisionSettings


class FakeClassifier:
    """Gives logit 10 to one class, the rounded mean of the first channel, and 0 to the others."""

    def __init__(self, classes: int, *, delay: float = 0.0) -> None:
        self.classes = classes
        self._delay = delay

    def classify(self, pixels: Pixels) -> Logits:
        """Logits float32[B, C] of pixels uint8[B, 3, H, W]."""
        time.sleep(self._delay)
        chosen = np.rint(pixels[:, 0].mean(axis=(1, 2))).astype(int) % self.classes
        logits = np.zeros((len(pixels), self.classes), np.float32)
        logits[np.arange(len(pixels)), chosen] = 10
        return logits


def open_engine(artefact: ClassifierArtefact, settings: VisionSettings) -> FakeClassifier:
    """Opens a fake with the artefact's number of classes and the settings' delay."""
    return FakeClassifier(len(artefact.labels), delay=settings.fake_delay_ms / 1000)
