"""Draws lengths of prompts and answers from a distribution that is given as text.

64                 always 64
uniform:32-256     every whole number from 32 to 256 as likely
lognormal:400,0.6  median 400, standard deviation 0.6 of the logarithm
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from trimodal.errors import SettingsError

FORMS = "64, uniform:32-256 or lognormal:400,0.6"
MOST = 1_000_000


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers from `least` up.

    Attributes:
        text: as it was given.
        kind: fixed, uniform or lognormal.
        first, second: its two numbers.
    """

    text: str
    kind: str
    first: float
    second: float
    least: int = 1

    def draw(self, rng: random.Random) -> int:
        """Returns one length."""
        if self.kind in ("fixed", "uniform"):
            return rng.randint(int(self.first), int(self.second))
        value = self.first * math.exp(rng.gauss(0.0, self.second))
        return min(MOST, max(self.least, round(value)))


def parse_lengths(text: str, option: str, least: int = 1) -> Lengths:
    """Reads a distribution.

    Args:
        option: for the sentence of an error.
        least: of what may be drawn.

    Raises:
        SettingsError: it has none of the forms, or would draw less than `least`.
    """
    kind, colon, rest = text.strip().partition(":")
    if not colon:
        kind, rest = "fixed", f"{kind}-{kind}"
    try:
        first, second = map(float, rest.split("," if kind == "lognormal" else "-"))
    except ValueError:
        first = second = math.nan
    most = {"fixed": MOST, "uniform": MOST, "lognormal": 5}.get(kind, math.nan)
    lowest = 0 if kind == "lognormal" else first
    if not (least <= first <= MOST and lowest <= second <= most):
        raise SettingsError(f"{option} {text}: {FORMS} is needed, from {least} to {MOST}")
    return Lengths(text.strip(), kind, first, second, least)
