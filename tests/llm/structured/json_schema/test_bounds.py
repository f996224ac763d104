"""Numbers within bounds that are multiples: none else is written, and the bounds may lie anywhere."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.llm.structured.sentences import Sentences
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema.bounds import number
from trimodal.llm.structured.json_schema.keywords import Unheld

STEPS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 25, 60, 100, 1000, 86400, 0.01, 0.1, 0.25, 0.5, 1.5, 0.3])
BOUNDS = st.one_of(st.none(), st.integers(-3000, 3000), st.floats(-500, 500).map(lambda one: round(one, 3)))


def drawn(schema: dict[str, Any], whole: bool, seed: int) -> Decimal:
    grammar = Grammar()
    made = Sentences(grammar.text(number(grammar, schema, whole=whole)))
    return Decimal(json.loads(made.draw(seed), parse_float=str, parse_int=str))


@given(STEPS, BOUNDS, BOUNDS, st.booleans(), st.booleans(), st.integers(0, 99))
def test_only_multiples_within_bounds(
    step: float, low: float | None, high: float | None, excluded: bool, whole: bool, seed: int
) -> None:
    keys = ("exclusiveMinimum", "exclusiveMaximum") if excluded else ("minimum", "maximum")
    schema = {key: value for key, value in zip(keys, (low, high), strict=True) if value is not None}
    try:
        value = drawn({**schema, "multipleOf": step}, whole, seed)
    except Unheld:
        return
    assert value % Decimal(repr(step)) == 0
    assert not whole or value == int(value)
    if low is not None:
        assert value > Decimal(repr(low)) if excluded else value >= Decimal(repr(low))
    if high is not None:
        assert value < Decimal(repr(high)) if excluded else value <= Decimal(repr(high))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "schema",
    [
        {"minimum": -9007199254740991, "maximum": 9007199254740991},
        {"minimum": 10**16}, {"maximum": -(10**16)}, {"minimum": -1e300, "maximum": 1e300},
        {"minimum": 1e-300, "maximum": 1}, {"exclusiveMinimum": 0.1234567, "exclusiveMaximum": 0.2}, {},
    ],
    ids=str,
)  # fmt: skip
def test_no_bound_is_too_large_or_too_fine(schema: dict[str, Any], whole: bool) -> None:
    if whole and schema.get("exclusiveMaximum") == 0.2:
        with pytest.raises(Unheld):
            drawn(schema, whole, 0)
        return
    for seed in range(20):
        value = drawn(schema, whole, seed)
        assert (
            Decimal(repr(schema.get("minimum", -1e301)))
            <= value
            <= Decimal(repr(schema.get("maximum", 1e301)))
        )
