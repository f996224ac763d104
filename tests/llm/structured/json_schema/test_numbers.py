"""Ranges of numbers as expressions, held against the numbers themselves."""

from __future__ import annotations

import re
from decimal import Decimal

from hypothesis import assume, given
from hypothesis import strategies as st

from trimodal.llm.structured.json_schema.numbers import integers, numbers


def pattern(expressions: list[str]) -> re.Pattern[str]:
    """The expressions as a regular expression; they use no rule."""
    quoted = re.compile(r'"([^"]*)"')
    return re.compile(
        "|".join(quoted.sub(lambda text: re.escape(text[1]), one) for one in expressions).replace(" ", "")
    )


@given(st.integers(-5000, 5000), st.integers(0, 3000), st.data())
def test_exactly_the_whole_numbers_of_a_range(low: int, width: int, data: st.DataObject) -> None:
    found = pattern(integers(low, low + width))
    value = data.draw(st.integers(low - 50, low + width + 50))
    assert bool(found.fullmatch(str(value))) == (low <= value <= low + width)
    assert not found.fullmatch(f"0{abs(value)}")
    assert not found.fullmatch("-0")


def test_the_largest_range() -> None:
    most = 10**15 - 1
    found = pattern(integers(-most, most))
    assert all(found.fullmatch(str(value)) for value in (0, 7, -7, 10, most, -most))
    assert not any(found.fullmatch(text) for text in ("00", "-0", str(most + 1), "", "1.0", "1e3"))


BOUNDS = st.decimals(-900, 900, places=2)
# Also none, or so little that nothing of two decimals lies between.
WIDTHS = st.sampled_from([Decimal(n) / 100 for n in range(4)]) | st.decimals(0, 900, places=2)


@given(BOUNDS, WIDTHS, st.booleans(), st.booleans(), st.data())
def test_no_number_beyond_its_bounds(
    low: Decimal, width: Decimal, above: bool, below: bool, data: st.DataObject
) -> None:
    high = low + width
    expressions = numbers(low, high, above=above, below=below)
    held = 100 * width + 1 - above - below
    assert bool(expressions) == (held > 0)
    assume(expressions)
    # What the grammar writes, not what could be written: the expressions generate the text.
    text = data.draw(st.from_regex(pattern(expressions), fullmatch=True))
    value = Decimal(text)
    assert low < value if above else low <= value
    assert value < high if below else value <= high
    assert not re.match(r"-?0\d", text)


def test_a_probability_has_all_its_decimals() -> None:
    found = pattern(numbers(Decimal(0), Decimal(1)))
    assert all(found.fullmatch(text) for text in ("0", "1", "0.00", "0.25", "0.999999", "1.00"))
    assert not any(found.fullmatch(text) for text in ("1.01", "-0.5", "2", ".5", "00.5", "0.9999999"))
