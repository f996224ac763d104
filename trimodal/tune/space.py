"""Gives Optuna the knobs as numbers, and reads settings back from its trials."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial

from trimodal.tune.knobs import Knob

Setting = dict[str, str]
"""`model.knob` → value as text, of every knob that is searched."""


class Space:
    """All settings that the knobs allow.

    Choices that are numbers are searched by their place in the order: what is near is alike. Words are not.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knobs)
        self.size = math.prod(len(knob.choices) for knob in knobs)
        self.distributions: dict[str, BaseDistribution] = {
            knob.label: IntDistribution(0, len(knob.choices) - 1)
            if knob.is_numeric
            else CategoricalDistribution(knob.choices)
            for knob in knobs
        }

    def all(self) -> Iterator[Setting]:
        """Every setting, in order."""
        for values in itertools.product(*(knob.choices for knob in self.knobs)):
            yield dict(zip((knob.label for knob in self.knobs), values, strict=True))

    def of_trial(self, trial: Trial) -> Setting:
        found = {knob: trial.params[knob.label] for knob in self.knobs}
        return {knob.label: knob.choices[at] if knob.is_numeric else at for knob, at in found.items()}

    def parameters(self, setting: Setting) -> dict[str, int | str] | None:
        """A setting as Optuna's parameters; None: it has a value that is no choice, as the start may."""
        if any(setting[knob.label] not in knob.choices for knob in self.knobs):
            return None
        values = {knob: setting[knob.label] for knob in self.knobs}
        return {
            knob.label: knob.choices.index(value) if knob.is_numeric else value
            for knob, value in values.items()
        }

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
