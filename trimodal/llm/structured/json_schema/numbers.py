"""Writes ranges of numbers as expressions of a grammar, digit by digit.

No two alternatives of one begin alike: of such xgrammar makes others, as of an enum's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import groupby
from typing import NamedTuple

from trimodal.llm.structured.grammar import one_of, times

FRACTION_DIGITS = 6  # with the 9 before the point a number is still exact as a float
_FEWEST_DECIMALS = 2  # so that there is something between 0 and 1


class _Span(NamedTuple):
    """Digits from `low` to `high`, of equal lengths. The last `places` of them stand behind a point that is
    still to come; up to `more` digits may follow."""

    low: str
    high: str
    places: int = 0
    more: int = 0


def integers(low: int, high: int) -> list[str]:
    """Expressions of the whole numbers from `low` to `high`; [] when there is none."""
    return _signed(list(_whole(max(1, -high), -low)), list(_whole(max(0, low), high)))


def numbers(low: Decimal, high: Decimal, *, above: bool = False, below: bool = False) -> list[str]:
    """Expressions of the decimal numbers from `low` to `high`, both of at most 6 decimals; []: there is none.

    `above` and `below`: without the bound itself.
    """
    first, last = int(low.to_integral_value(ROUND_CEILING)), int(high.to_integral_value(ROUND_FLOOR))
    first += above and first == low
    last -= below and last == high
    negative, positive = list(_whole(max(1, -last), -first)), list(_whole(max(0, first), last))
    if low < 0 and low <= high:
        bottom = max(Decimal(0), -high)
        negative += _decimals(bottom, -low, below and bottom == -high, above)
    if high > 0 and low <= high:
        top = max(Decimal(0), low)
        positive += _decimals(top, high, above and top == low, below)
    return _signed(negative, positive)


def decimals_of(value: Decimal) -> int:
    """How many digits there are after the point."""
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _signed(negative: Sequence[_Span], positive: Sequence[_Span]) -> list[str]:
    below = [f'"-" {_expression(negative)}'] if negative else []
    return below + ([_expression(positive)] if positive else [])


def _whole(low: int, high: int) -> Iterator[_Span]:
    """`low` (0 or more) to `high` without leading zeros."""
    for length in range(len(str(low)), len(str(max(high, 0))) + 1):
        first, last = max(low, 10 ** (length - 1) if length > 1 else 0), min(high, 10**length - 1)
        if first <= last:
            yield _Span(str(first), str(last))


def _decimals(low: Decimal, high: Decimal, above: bool, below: bool) -> Iterator[_Span]:
    """Numbers with a point, neither below 0."""
    places = max(_FEWEST_DECIMALS, decimals_of(low), decimals_of(high))
    scale = 10**places
    first, last = int(low * scale) + above, int(high * scale)
    yield from _pointed(first, last - 1, places, FRACTION_DIGITS - places)
    # What begins like `last` goes beyond it with any further digit but 0; the bound itself stands alone.
    if first <= last and not below:
        yield from _pointed(last, last, places, 0)


def _pointed(first: int, last: int, places: int, more: int) -> Iterator[_Span]:
    """`first` to `last` with a point before the last `places` digits, and at least one digit before it."""
    scale = 10**places
    if first > last:
        return
    for whole in _whole(first // scale, last // scale):
        low, high = max(first, int(whole.low) * scale), min(last, int(whole.high) * scale + scale - 1)
        length = len(whole.low) + places
        yield _Span(str(low).zfill(length), str(high).zfill(length), places, more)


def _expression(spans: Sequence[_Span]) -> str:
    """An expression of the texts of all spans."""
    free = not any(span.low.strip("0") or span.high.strip("9") for span in spans)
    lengths = sorted({len(span.low) - span.places for span in spans})
    ends = {span._replace(low=span.low[: span.places], high=span.high[: span.places]) for span in spans}
    if free and len(spans) == len(lengths) * len(ends) and 0 < lengths[-1] == lengths[0] + len(lengths) - 1:
        return _joined(times("[0-9]", lengths[0], lengths[-1]), _expression(sorted(ends)))
    parts = []
    for after, digits in groupby("0123456789", key=lambda digit: _after(spans, digit)):
        if after:
            first, *others = digits
            parts.append(_joined(f"[{first}-{others[-1]}]" if others else f"[{first}]", _expression(after)))
    if point := [span._replace(places=0) for span in spans if 0 < span.places == len(span.low)]:
        parts.append(_joined('"."', _expression(point)))
    if ended := [span for span in spans if not span.low]:
        parts.append(times("[0-9]", 0, ended[0].more) if ended[0].more else '""')
    assert parts, "no alternative would be the empty text to xgrammar"
    return one_of(parts)


def _joined(one: str, rest: str) -> str:
    return one if rest == '""' else f"{one} {rest}"


def _after(spans: Sequence[_Span], digit: str) -> tuple[_Span, ...]:
    """What may follow a digit."""
    return tuple(
        span._replace(
            low=span.low[1:] if digit == span.low[0] else "0" * (len(span.low) - 1),
            high=span.high[1:] if digit == span.high[0] else "9" * (len(span.high) - 1),
        )
        for span in spans
        if len(span.low) > span.places and span.low[0] <= digit <= span.high[0]
    )
