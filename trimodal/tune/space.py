"""Says which settings the knobs allow, and which are near each other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from trimodal.tune.knobs import Knob

Setting = dict[str, str]
"""`model.knob` → value as text, of every knob that is searched."""


class Space:
    """All settings that the knobs allow.

    Choices that are numbers are searched by their place in the order: what is near is alike. Words are not.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knobs)

    def all(self) -> Iterator[Setting]:
        """Every setting, in order."""
        for values in itertools.product(*(knob.choices for knob in self.knobs)):
            yield dict(zip((knob.label for knob in self.knobs), values, strict=True))

    def draw(self, rng: random.Random) -> Setting:
        """Any setting."""
        return {knob.label: rng.choice(knob.choices) for knob in self.knobs}

    def neighbours(self, setting: Setting, rng: random.Random) -> list[Setting]:
        """Settings with one knob one step away (a word: any other one), in random order."""
        found = [
            {**setting, knob.label: value}
            for knob in self.knobs
            for value in _beside(knob, setting[knob.label])
        ]
        rng.shuffle(found)
        return found


def _beside(knob: Knob, value: str) -> list[str]:
    if value not in knob.choices or not knob.is_numeric:
        return [choice for choice in knob.choices if choice != value]
    at = knob.choices.index(value)
    return [knob.choices[near] for near in (at + 1, at - 1) if 0 <= near < len(knob.choices)]
