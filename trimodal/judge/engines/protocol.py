"""Defines the contract of a judge of pairs, and opens one by name.

The service has checked limits and UTF-8; how the texts are read is the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.judge.settings import JudgeSettings

Probabilities = NDArray[np.float32]
Pairs = Sequence[tuple[str, str]]


class PairJudge(Protocol):
    """Says how likely one answer is right for both questions of a pair, read in that order.

    The other pairs of a run do not change a pair's score: they may be another tenant's.

    Attributes:
        checkpoint: SHA-256 of what it was built from; "fake".
    """

    checkpoint: str

    def judge(self, pairs: Pairs) -> Probabilities:
        """P(same) float32[N] of `pairs`, in order; 0 for a pair of which the model cannot read all."""


def open_engine(directory: Path, settings: JudgeSettings) -> PairJudge:
    """Opens the engine that `settings.engine` names. Raises ArtefactError: `directory` does not fit it."""
    engine: PairJudge = import_module(f"trimodal.judge.engines.{settings.engine}").open_engine(
        directory, settings
    )
    return engine
