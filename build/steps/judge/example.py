"""Holds one labelled pair of questions, and texts as the judge reads them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from trimodal.judge.normaliser import normalise

normalised = cache(normalise)
"""The same as `normalise`, for texts that are read many times."""


class Example(NamedTuple):
    """Two questions and whether one answer serves both.

    Attributes:
        kind: of difference or sameness.
        wordings: kinds of sameness by which its sides were reworded, where that is known.
    """

    a: str
    b: str
    same: bool
    kind: str
    domain: str
    wordings: tuple[str, ...] = ()
