"""Gives Optuna the knobs as numbers, and reads settings back from its trials."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, Trial

from trimodal.tune.knobs import Knob

Setting = dict[str, str]
"""`model.knob` → value as text, of every knob that is searched."""


class Space:
    """All settings that the knobs allow.

    Choices that are numbers are searched by their place in the order: what is near is alike. Words are not.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        self.knobs = tuple(knobs)
        self.distributions = {knob.label: _distribution(knob) for knob in knobs}

    @property
    def size(self) -> int | None:
        """How many settings there are; None: a range makes them countless for a grid."""
        if any(not knob.choices for knob in self.knobs):
            return None
        return math.prod(len(knob.choices) for knob in self.knobs)

    def all(self) -> Iterator[Setting]:
        """Every setting of choices, in order."""
        for values in itertools.product(*(knob.choices for knob in self.knobs)):
            yield dict(zip((knob.label for knob in self.knobs), values, strict=True))

    def of_trial(self, trial: Trial | FrozenTrial) -> Setting:
        return {knob.label: _text(knob, trial.params[knob.label]) for knob in self.knobs}

    def parameters(self, setting: Setting) -> dict[str, int | float | str]:
        """A setting as Optuna's parameters; without the values that no choice or range has."""
        found = {}
        for knob in self.knobs:
            value = _number(knob, setting[knob.label])
            if value is not None:
                found[knob.label] = value
        return found

    def neighbours(self, setting: Setting, rng: random.Random) -> list[Setting]:
        """Settings with one knob one step away (a word: any other one), in random order."""
        found = []
        for knob in self.knobs:
            for value in _beside(knob, setting[knob.label]):
                found.append({**setting, knob.label: value})
        rng.shuffle(found)
        return found


def _is_numeric(knob: Knob) -> bool:
    return all(_float(choice) is not None for choice in knob.choices)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _distribution(knob: Knob) -> BaseDistribution:
    if knob.choices:
        if _is_numeric(knob):
            return IntDistribution(0, len(knob.choices) - 1)
        return CategoricalDistribution(knob.choices)
    # Over more than one order of magnitude ratios count.
    log = knob.low > 0 and knob.high / knob.low >= 10
    if knob.whole:
        return IntDistribution(int(knob.low), int(knob.high), log=log)
    return FloatDistribution(knob.low, knob.high, log=log)


def _text(knob: Knob, value: object) -> str:
    if knob.choices:
        return knob.choices[int(str(value))] if _is_numeric(knob) else str(value)
    return str(int(str(value))) if knob.whole else f"{float(str(value)):.4g}"


def _number(knob: Knob, text: str) -> int | float | str | None:
    if knob.choices:
        if text not in knob.choices:
            return None
        return knob.choices.index(text) if _is_numeric(knob) else text
    value = _float(text)
    if value is None or not knob.low <= value <= knob.high:
        return None
    return int(value) if knob.whole else value


def _beside(knob: Knob, text: str) -> list[str]:
    if not knob.choices:
        value, step = _float(text), (knob.high - knob.low) / 10
        if value is None:
            return []
        near = [min(knob.high, value + step), max(knob.low, value - step)]
        shown = (str(round(one)) if knob.whole else f"{one:.4g}" for one in near)
        return [one for one in dict.fromkeys(shown) if one != text]
    if text not in knob.choices or not _is_numeric(knob):
        return [choice for choice in knob.choices if choice != text]
    at = knob.choices.index(text)
    return [knob.choices[near] for near in (at + 1, at - 1) if 0 <= near < len(knob.choices)]
