"""Says what a maker of pairs returns."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Made(NamedTuple):
    """Two questions, whether they are `same` is their kind's matter; `domain` is what they are about."""

    a: str
    b: str
    kind: str
    domain: str


Maker = Callable[[random.Random], Made]
"""Makes one pair; the same generator state, the same pair."""
