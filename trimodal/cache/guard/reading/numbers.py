"""Gives numbers and quantities in a question one spelling: `n:12`, `o:3`, `q:time*1209600`.

A number alone is compared as it is written, because 3.10 is another version than 3.1; with a
unit behind it, it is a quantity and is converted. `dates` comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from trimodal.cache.guard.lexicon.word_lists import word_list, word_map, word_set
from trimodal.cache.guard.reading.units import TIMES, UNITS, quantity, unit_word
from trimodal.cache.guard.reading.words import CODE, FIGURE, rewritten

_UNDER_20 = word_list(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen"""
)
_TENS = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_ORDINAL = word_list(
    """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"""
)
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "k": 1000}
_SMALL = {word: value for value, word in enumerate(_UNDER_20)} | {
    word: 20 + 10 * index for index, word in enumerate(_TENS)
}
_ORDINALS = {word: value for value, word in enumerate(_ORDINAL, 1)} | {"1st": 1, "2nd": 2, "3rd": 3}
_FIGURE = re.compile(
    r"(?P<currency>[$£€¥])?(?P<number>[+-]?\d+(?:,\d{3})+(?:\.\d+)?|[+-]?\d+(?:\.\d+)?)(?P<unit>[$£€¥]|%"
    r"|[°ºa-z/]{1,7})?"
)
# A week behind one of these is a length of time; behind anything else, "a week" is a rate.
_BEFORE_LENGTHS = word_set(
    """in for within after about over under of last lasts lasted take takes took least most than nearly
    almost is around until every only half with once"""
)
_RATES = word_map(
    """hourly=hour daily=day weekly=week monthly=month yearly=year annual=year annually=year
    nightly=night"""
)


_DEGREES = ("celsius", "c", "fahrenheit", "f", "centigrade")


def numbered(words: Sequence[str]) -> list[str]:
    """`words` with figures, number words and units replaced."""
    return rewritten(words, _at)


def _at(words: Sequence[str], index: int) -> tuple[int, list[str]]:
    """How many words at `index` are read together, and what they become."""
    word = words[index]
    before = words[index - 1] if index else ""
    after = _plain(words[index + 1]) if index + 1 < len(words) else ""
    if word in _RATES:
        return 1, [_rate(_RATES[word])]
    if word in ("per", "each", "every", "a", "an") and (after in UNITS or after == "night"):
        if word in ("a", "an") and list(words[index + 2 : index + 5]) == ["and", "a", "half"]:
            return 5, [quantity(Fraction(3, 2), after)]
        if word in ("a", "an") and list(words[index + 2 : index + 3]) == ["of"]:
            return 2, [quantity(Fraction(1), after)]
        if word in ("a", "an") and UNITS.get(after, ("",))[0] not in TIMES:
            return 1, [word]
        if word in ("a", "an") and before in _BEFORE_LENGTHS:
            return 2, [quantity(Fraction(1), after)]
        return 2, [_rate(after)]
    if word == "half":
        skipped = 1 if after in ("a", "an") else 0
        unit = _plain(words[index + 1 + skipped]) if index + 1 + skipped < len(words) else ""
        return (2 + skipped, [quantity(Fraction(1, 2), unit)]) if unit in UNITS else (1, ["n:0.5"])
    if word.startswith(FIGURE):
        return _figure(words, index)
    if word in _SMALL or (
        word in ("a", "an", "some") and after in ("hundred", "thousand", "million", "dozen")
    ):
        return _spelled(words, index)
    if word in ("dozen", "hundred", "thousand", "million", "billion"):
        return 1, [f"n:{12 if word == 'dozen' else _SCALES[word]}"]
    if word in _ORDINALS and not (word == "second" and before in ("per", "a", "one", "every")):
        return 1, [f"o:{_ORDINALS[word]}"]
    if unit := unit_word(word):
        return 1, [unit]
    return 1, [word]


def _plain(word: str) -> str:
    return word[1:].lower() if word[:1] in (CODE, "^") else word


def _rate(unit: str) -> str:
    dimension, factor = UNITS.get(unit, (unit, Fraction(1)))
    return f"u:per-{dimension}*{factor}"


def _figure(words: Sequence[str], index: int) -> tuple[int, list[str]]:
    text = words[index][1:]
    if ordinal := re.fullmatch(r"(\d+)(?:st|nd|rd|th)", text):
        return 1, [f"o:{int(ordinal[1])}"]
    if not (match := _FIGURE.fullmatch(text)):
        return 1, [f"n:{text}"]
    shown = match["number"].replace(",", "") if re.search(r"\d,\d{3}", match["number"]) else match["number"]
    unit = match["currency"] or match["unit"] or ""
    if unit in _SCALES:
        shown, unit = f"{Fraction(shown) * _SCALES[unit]}", ""
    if unit and unit not in UNITS:
        return 1, [CODE + text]
    return _with_unit(words, index, 1, shown, Fraction(shown), unit)


def _spelled(words: Sequence[str], index: int) -> tuple[int, list[str]]:
    """two hundred and fifty; one and a half; a dozen."""
    total, part, taken = 0, 0, 0
    while index + taken < len(words):
        word = words[index + taken]
        later = words[index + taken + 1] if index + taken + 1 < len(words) else ""
        if word in _SMALL and (
            taken == 0 or part % 100 == 0 or (part % 10 == 0 and 0 < _SMALL[word] < 10 and part % 100 >= 20)
        ):
            part += _SMALL[word]
        elif word == "hundred":
            part = max(1, part) * 100
        elif word in ("thousand", "million", "billion"):
            total, part = total + max(1, part) * _SCALES[word], 0
        elif word == "dozen":
            part = max(1, part) * 12
        elif not (word in ("a", "an", "some") and taken == 0) and not (
            word == "and" and part >= 100 and later in _SMALL
        ):
            break
        taken += 1
    number = Fraction(total + part)
    if list(words[index + taken : index + taken + 3]) == ["and", "a", "half"]:
        number, taken = number + Fraction(1, 2), taken + 3
    shown = str(number) if number.denominator == 1 else str(float(number))
    made = _with_unit(words, index, taken, shown, number, "")
    if made[1] == ["n:1"]:
        return made[0], ["one"]
    return made


def _with_unit(
    words: Sequence[str], index: int, taken: int, shown: str, number: Fraction, unit: str
) -> tuple[int, list[str]]:
    def at(place: int) -> str:
        return _plain(words[place]) if place < len(words) else ""

    after = at(index + taken)
    if after in _SCALES and after != "k":
        number, taken = number * _SCALES[after], taken + 1
        shown, after = str(number) if number.denominator == 1 else str(float(number)), at(index + taken)
    if not unit and [after, at(index + taken + 1)] == ["and", "a"] and at(index + taken + 2) == "half":
        number, taken = number + Fraction(1, 2), taken + 3
        shown, after = str(float(number)), at(index + taken)
    if not unit and after in UNITS:
        unit, taken = after, taken + 1
        scale = at(index + taken)
        if unit in ("degree", "degrees", "deg", "°") and scale in _DEGREES:
            unit, taken = "celsius" if scale[0] == "c" else "fahrenheit", taken + 1
    if not unit:
        return taken, [f"n:{shown}"]
    return taken, [quantity(number, unit)]
