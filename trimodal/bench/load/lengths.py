"""Draws lengths of prompts and answers from a distribution that is given as text.

64                 always 64
uniform:32-256     every whole number from 32 to 256 as likely
normal:400,80      mean 400, standard deviation 80
lognormal:400,0.6  median 400, standard deviation 0.6 of the logarithm
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from trimodal.errors import SettingsError

FORMS = "64, uniform:32-256, normal:400,80 or lognormal:400,0.6"
MOST = 1_000_000


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers from `least` up.

    Attributes:
        text: as it was given.
        kind: fixed, uniform, normal or lognormal.
        first, second: its two numbers.
    """

    text: str
    kind: str
    first: float
    second: float = 0.0
    least: int = 1

    def draw(self, rng: random.Random) -> int:
        """Returns one length."""
        if self.kind == "uniform":
            return rng.randint(int(self.first), int(self.second))
        value = self.first
        if self.kind == "normal":
            value = rng.gauss(self.first, self.second)
        elif self.kind == "lognormal":
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
        kind, rest = "fixed", kind
    numbers = rest.split("-" if kind == "uniform" else ",")
    try:
        first, second = [float(number) for number in numbers] if len(numbers) == 2 else (float(rest), 0.0)
    except ValueError:
        first = second = math.nan
    given = 1 if kind == "fixed" else 2
    if kind not in ("fixed", "uniform", "normal", "lognormal") or len(numbers) != given:
        raise SettingsError(f"{option} {text}: {FORMS} is needed")
    if not (math.isfinite(first) and math.isfinite(second) and second >= 0):
        raise SettingsError(f"{option} {text}: {FORMS} is needed")
    if not least <= first <= MOST:
        raise SettingsError(f"{option} {text}: {least} to {MOST} is needed, not {first:g}")
    if kind == "uniform" and not first <= second <= MOST:
        raise SettingsError(f"{option} {text}: the second number must be {first:g} to {MOST}")
    if kind == "lognormal" and second > 5:
        raise SettingsError(f"{option} {text}: the second number is of the logarithm: 5 at most")
    return Lengths(text.strip(), kind, first, second, least)
