"""Writes ranges of numbers as expressions of a grammar, digit by digit."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import groupby

FRACTION_DIGITS = 6  # with the 9 before the point a number is still exact as a float
_FEWEST_DECIMALS = 2  # so that there is something between 0 and 1


def integers(low: int, high: int) -> list[str]:
    """Expressions of the whole numbers from `low` to `high`; [] when there is none."""
    return _signed(*_whole(low, high))


def numbers(low: Decimal, high: Decimal, *, above: bool = False, below: bool = False) -> list[str]:
    """Expressions of the decimal numbers from `low` to `high`, both of at most 6 decimals; []: there is none.

    `above` and `below`: without the bound itself.
    """
    whole_low = int(low.to_integral_value(ROUND_CEILING))
    whole_high = int(high.to_integral_value(ROUND_FLOOR))
    whole_low += above and whole_low == low
    whole_high -= below and whole_high == high
    negative, positive = _whole(whole_low, whole_high)
    if low < 0 and low <= high:
        bottom = max(Decimal(0), -high)
        negative += _decimals(bottom, -low, below and bottom == -high, above)
    if high > 0 and low <= high:
        top = max(Decimal(0), low)
        positive += _decimals(top, high, above and top == low, below)
    return _signed(negative, positive)


def _whole(low: int, high: int) -> tuple[list[str], list[str]]:
    """The whole numbers below 0, without their sign, and the others."""
    negative = _naturals(max(1, -high), -low) if low <= high and low < 0 else []
    positive = ['"0"'] if low <= 0 <= high else []
    return negative, positive + (_naturals(max(1, low), high) if low <= high and high > 0 else [])


def _signed(negative: list[str], positive: list[str]) -> list[str]:
    """With one minus for all: of alternatives that begin with it xgrammar makes others, as of an enum's."""
    return [*([f'"-" ({" | ".join(negative)})'] if negative else []), *positive]


def decimals_of(value: Decimal) -> int:
    """How many digits there are after the point."""
    exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _decimals(low: Decimal, high: Decimal, above: bool, below: bool) -> list[str]:
    """Numbers with a point, neither below 0."""
    places = max(_FEWEST_DECIMALS, decimals_of(low), decimals_of(high))
    scale = 10**places
    first, last = int(low * scale), int(high * scale)
    first += above
    more = FRACTION_DIGITS - places
    further = f" [0-9]{{0,{more}}}" if more else ""
    # What begins like `last` goes beyond it with any further digit but 0; the bound itself stands alone.
    expressions = [f"{text}{further}" for text in _padded(first, last - 1, places)]
    return expressions if below or last < first else expressions + _padded(last, last, places)


def _padded(low: int, high: int, places: int) -> list[str]:
    """`low` to `high` with a point before the last `places` digits, and at least one digit before it."""
    expressions = []
    for length in range(places + 1, len(str(max(high, 0))) + 1 if high >= 10**places else places + 2):
        floor = 0 if length == places + 1 else 10 ** (length - 1)
        first, last = max(low, floor), min(high, 10**length - 1)
        if first <= last:
            for digits in _between(str(first).zfill(length), str(last).zfill(length)):
                expressions.append(f'{_joined(digits[:-places])} "." {_joined(digits[-places:])}')
    return expressions


def _naturals(low: int, high: int) -> list[str]:
    """`low` (1 or more) to `high` without leading zeros."""
    rows: set[tuple[str, ...]] = set()
    for length in range(len(str(low)), len(str(high)) + 1):
        first, last = max(low, 10 ** (length - 1)), min(high, 10**length - 1)
        if first <= last:
            rows |= set(map(tuple, _between(str(first), str(last))))
    return [_factored(frozenset(rows))] if rows else []


def _factored(rows: frozenset[tuple[str, ...]]) -> str:
    """One expression of rows of digit classes, in which no two alternatives begin alike."""
    lengths = sorted(map(len, rows))
    if all(one == "0-9" for row in rows for one in row) and lengths == list(
        range(lengths[0], lengths[-1] + 1)
    ):
        return f"[0-9]{{{lengths[0]},{lengths[-1]}}}" if lengths[-1] else '""'
    rests = [
        frozenset(row[1:] for row in rows if row and int(row[0][0]) <= digit <= int(row[0][-1]))
        for digit in range(10)
    ]
    parts = ['""'] if () in rows else []
    for rest, digits in groupby(range(10), key=rests.__getitem__):
        first, *others = digits
        if rest:
            one = f"[{first}-{others[-1]}]" if others else f"[{first}]"
            parts.append(one if rest == {()} else f"{one} {_factored(rest)}")
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def _between(low: str, high: str) -> list[list[str]]:
    """Rows of digit classes that together are the numbers from `low` to `high`, of equal lengths."""
    if not low:
        return [[]]
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if first == last:
        return [[low[0], *tail] for tail in _between(low[1:], high[1:])]
    rows = []
    if low[1:] != "0" * rest:
        rows += [[low[0], *tail] for tail in _between(low[1:], "9" * rest)]
        first += 1
    tails = [] if high[1:] == "9" * rest else _between("0" * rest, high[1:])
    if tails:
        last -= 1
    if first <= last:
        rows.append([f"{first}-{last}", *["0-9"] * rest])
    return rows + [[high[0], *tail] for tail in tails]


def _joined(digits: list[str]) -> str:
    runs = [(one, len(list(same))) for one, same in groupby(digits)]
    return " ".join(f"[{one}]" if count == 1 else f"[{one}]{{{count}}}" for one, count in runs)
