"""Sets how sure the judge must be, a place at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trimodal.cache.values import Place


class Thresholds(Protocol):
    """What P(same) a stored answer must reach. Called from several threads at once."""

    def threshold(self, place: Place) -> float:
        """Of questions that are answered from `place`."""


@dataclass(frozen=True)
class ConstantThreshold:
    """One threshold for every place."""

    value: float

    def threshold(self, place: Place) -> float:
        """The same whatever `place` is."""
        return self.value
