"""Defines the contract of a model of turns, and opens one by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.turn.settings import TurnSettings

WINDOW_S = 8
WINDOW = WINDOW_S * SAMPLE_RATE  # samples that are judged
Probabilities = NDArray[np.float32]


class TurnEngine(Protocol):
    """Says of the end of a recording how probable it is that the speaker has finished."""

    def judge(self, windows: Sequence[Samples]) -> Probabilities:
        """P(finished) float32[N] of windows float32[n], 0 < n ≤ WINDOW; none moves another's."""


def open_engine(directory: Path, settings: TurnSettings) -> TurnEngine:
    """Opens the engine that `settings.engine` names. Raises ArtefactError: `directory` does not fit it."""
    module = import_module(f"trimodal.turn.engines.{settings.engine}")
    engine: TurnEngine = module.open_engine(directory, settings)
    return engine
