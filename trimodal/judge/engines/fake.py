"""Fakes a judge, for tests and for load tests of the serving path alone.

P(same) is the share of words that both questions have, of those that either has; order does not count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trimodal.judge.engines.protocol import Pairs, Probabilities
from trimodal.judge.normaliser import normalise
from trimodal.judge.settings import JudgeSettings
from trimodal.repository import FAKE


class FakeJudge:
    """Overlap of words (Jaccard); punctuation around them does not count."""

    checkpoint = FAKE

    def judge(self, pairs: Pairs) -> Probabilities:
        """P(same) float32[N] of `pairs`, of whatever length."""
        words = [(_words(one), _words(other)) for one, other in pairs]
        return np.array([len(one & other) / max(1, len(one | other)) for one, other in words], np.float32)


def open_engine(directory: Path, settings: JudgeSettings) -> FakeJudge:
    """Opens a fake; needs no artefact."""
    return FakeJudge()


def _words(text: str) -> set[str]:
    return {bare for word in normalise(text).split() if (bare := word.strip("?.,!;:"))}
