"""Makes the expression of a number: its bounds, and what it is a multiple of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from trimodal.llm.structured.grammar import Grammar, one_text
from trimodal.llm.structured.json_schema.keywords import Unheld
from trimodal.llm.structured.json_schema.numbers import FRACTION_DIGITS, decimals_of, integers, numbers
from trimodal.triton.fields import shown

_INTEGER_DIGITS = 15
_NUMBER_DIGITS = 9
_MOST_DIGITS = 18  # where bounds ask for more
_MOST_LISTED = 256
_SCALES = (10, 100, 1000)
_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")
_SMALLEST = Decimal(1).scaleb(-FRACTION_DIGITS)


def number(grammar: Grammar, schema: Mapping[str, Any], *, whole: bool) -> str:
    """An expression of the numbers of a schema. Raises Unheld."""
    low, above = _bound(schema, _LOWER, -1)
    high, below = _bound(schema, _UPPER, 1)
    # As many digits as are read exactly everywhere; more only where the bounds leave nothing else.
    digits = _INTEGER_DIGITS if whole else _NUMBER_DIGITS
    if low is not None and low > 0:
        digits = max(digits, len(str(int(low))))
    if high is not None and high < 0:
        digits = max(digits, len(str(int(-high))))
    if digits > _MOST_DIGITS:
        raise Unheld(
            next(key for key in (*_LOWER, *_UPPER) if key in schema),
            f"asks for more than {_MOST_DIGITS} digits",
        )
    most = Decimal(10**digits - 1)
    low, above = (-most, False) if low is None or low < -most else (low, above)
    high, below = (most, False) if high is None or high > most else (high, below)
    # The whole numbers.
    first = math.ceil(low) + (above and low == math.ceil(low))
    last = math.floor(high) - (below and high == math.floor(high))
    if "multipleOf" in schema:
        step = Fraction(_decimal(schema, "multipleOf"))
        if step <= 0:
            raise Unheld("multipleOf", f"is {shown(schema['multipleOf'])}: a number above 0 is needed")
        fraction = "" if whole else _fraction(step)
        if fraction:
            fraction = grammar.rule(fraction)
            expressions = integers(first, last) + _with_fraction(fraction, math.ceil(low), math.floor(high))
        else:
            # The least whole number that is a multiple.
            expressions = list(_multiples(grammar, step.numerator, first, last))
    elif whole:
        expressions = integers(first, last)
    else:
        # Bounds of more decimals than are written are moved inwards.
        inner_low, inner_high = _rounded(low, ROUND_CEILING), _rounded(high, ROUND_FLOOR)
        above, below = above and inner_low == low, below and inner_high == high
        expressions = numbers(inner_low, inner_high, above=above, below=below)
    if not expressions:
        key = next(key for key in (*_LOWER, *_UPPER, "multipleOf") if key in schema)
        raise Unheld(key, "leaves no number between its bounds")
    return grammar.rule(" | ".join(expressions))


def _bound(schema: Mapping[str, Any], keys: Sequence[str], sign: int) -> tuple[Decimal | None, bool]:
    """The stricter of two bounds, and whether it is excluded; None: there is none."""
    found = [(_decimal(schema, key), key.startswith("exclusive")) for key in keys if key in schema]
    return min(found, key=lambda one: (sign * one[0], not one[1])) if found else (None, False)


def _decimal(schema: Mapping[str, Any], key: str) -> Decimal:
    value = schema[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unheld(key, f"is {shown(value)}: a number is needed")
    return Decimal(repr(value))


def _rounded(value: Decimal, rounding: str) -> Decimal:
    return value if decimals_of(value) <= FRACTION_DIGITS else value.quantize(_SMALLEST, rounding)


def _multiples(grammar: Grammar, multiple: int, first: int, last: int) -> Sequence[str]:
    """Whole multiples from `first` to `last`: perhaps not all, none but those."""
    listed = range(-(-first // multiple) * multiple, last + 1, multiple)
    if multiple == 1 or not listed:
        return integers(first, last) if listed else []
    scale = next((scale for scale in _SCALES if scale % multiple == 0), 0)
    if scale and len(listed) > _MOST_LISTED:
        return _ending(grammar, multiple, scale, first, last)
    # Those next to 0.
    middle = min(max(0, -listed[0] // multiple), len(listed) - 1)
    start = max(0, min(middle - _MOST_LISTED // 2, len(listed) - _MOST_LISTED))
    return [one_text(map(str, listed[start : start + _MOST_LISTED]))]


def _fraction(step: Fraction) -> str:
    """Digits after the point that are multiples and not 0; "": there are none, too many, or without end."""
    if step.numerator != 1 or step.denominator == 1:
        return ""
    places = len(str(step.denominator)) - 1
    if 10**places == step.denominator:
        return _not_zero(min(places, FRACTION_DIGITS))
    if step.denominator > _MOST_LISTED:
        return ""
    texts = [str(Decimal(part) / step.denominator)[2:] for part in range(1, step.denominator)]
    return one_text(texts) if max(map(len, texts)) <= FRACTION_DIGITS else ""


def _with_fraction(fraction: str, low: int, high: int) -> list[str]:
    """Numbers with a fraction between two whole ones."""
    above = integers(max(0, low), high - 1)
    below = integers(max(0, -high), -low - 1)
    return [f'{one} "." {fraction}' for one in above] + [f'"-" {one} "." {fraction}' for one in below]


def _not_zero(places: int) -> str:
    """One to so many digits, not all of them 0."""
    first = "[1-9]" + (f" [0-9]{{0,{places - 1}}}" if places > 1 else "")
    return f'{first} | "0" ({_not_zero(places - 1)})' if places > 1 else first


def _ending(grammar: Grammar, multiple: int, scale: int, first: int, last: int) -> list[str]:
    """Multiples of a part of 10, 100 or 1000: told by their last digits."""
    places = len(str(scale)) - 1
    end = grammar.rule(one_text(f"{one:0{places}d}" for one in range(0, scale, multiple)))
    small = range(-(-max(first, 1 - scale) // multiple) * multiple, min(last, scale - 1) + 1, multiple)
    above = integers(max(1, -(-first // scale)), last // scale - 1)
    below = integers(max(1, -(last // scale)), -first // scale - 1)
    texts = [one_text(map(str, small))] if small else []
    return [*texts, *(f"{one} {end}" for one in above), *(f'"-" {one} {end}' for one in below)]
