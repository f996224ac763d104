"""Fakes a judge, for tests and for load tests of the serving path alone.

P(same) is the share of words that both questions have, of those that either has; order does not count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trimodal.judge.engines.protocol import Judged, Pairs
from trimodal.judge.normaliser import normalise
from trimodal.judge.settings import JudgeSettings


class FakeJudge:
    """Overlap of words (Jaccard); punctuation around them does not count."""

    def judge(self, pairs: Pairs) -> Judged:
        """P(same) float32[N] of `pairs`; every length fits."""
        same = [_overlap(_words(normalise(one)), _words(normalise(other))) for one, other in pairs]
        return Judged(np.array(same, np.float32), (True,) * len(same))


def open_engine(directory: Path, settings: JudgeSettings) -> FakeJudge:
    """Opens a fake; needs no artefact."""
    return FakeJudge()


def _words(text: str) -> set[str]:
    return {bare for word in text.split() if (bare := word.strip("?.,!;:"))}


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0
