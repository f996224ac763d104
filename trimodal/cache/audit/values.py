"""Values of the audit: what is checked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimodal.cache.semantic.decision import Decision

Agreement = Literal["agreed", "disagreed", "unclear"]
"""Whether a stored answer and a fresh one could stand for each other."""


@dataclass(frozen=True)
class Audit:
    """A decision that is to be checked against a fresh answer, and the probability of its being drawn."""

    decision: Decision
    probability: float
