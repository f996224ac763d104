"""Holding answers against schemas takes a bounded amount of work, whatever a client sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import _utils

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.json_schema import checks


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The library's comparisons of two values, and its classes that were made."""
    counts = [0]
    own = _utils.equal

    def equal(one: Any, other: Any) -> bool:
        counts[0] += 1
        return bool(own(one, other))

    for module in ("jsonschema._utils", "jsonschema._keywords"):
        monkeypatch.setattr(f"{module}.equal", equal)
    return counts


@pytest.mark.parametrize(
    ("value", "unique"),
    [
        ([1, True, False, 0, "1", None, [1], [True], {"a": 1}, {"a": True}], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([[], {}], True),
        ("aa", True),
    ],
)
def test_equal_items(value: Any, unique: bool) -> None:
    assert (not checks.problem({"uniqueItems": True}, json.dumps(value))) == unique
    assert not checks.problem({"uniqueItems": False}, json.dumps(value))


def test_many_items_are_not_compared_each_with_each(compared: list[int]) -> None:
    assert checks.problem({"uniqueItems": True}, json.dumps([{"a": n} for n in range(1000)])) == ""
    nested = {"items": {"$schema": "https://json-schema.org/draft/2020-12/schema", "uniqueItems": True}}
    assert checks.problem(nested, json.dumps([[{"a": n} for n in range(1000)]])) == ""
    schema = {"type": "integer", "not": {"required": [{"a": n} for n in range(1000)]}}
    assert checks.fault(schema)
    assert compared[0] < 5000


def test_a_schema_that_asks_for_too_much_is_given_up(compared: list[int]) -> None:
    schema = {"not": {"items": {"not": {"enum": list(range(300))}}}}
    assert "broke 'not'" in checks.problem(schema, json.dumps([500] * 20))
    assert "could not be checked" in checks.problem(schema, json.dumps([500] * 2000))
    assert compared[0] < 60_000


def test_what_is_evaluated_is_not_looked_for_without_end() -> None:
    """Each of 60 schemas leads to the next twice."""
    schema: dict[str, Any] = {"$defs": {"a60": {}}, "unevaluatedProperties": False, "$ref": "#/$defs/a0"}
    for place in range(60):
        following = {"$ref": f"#/$defs/a{place + 1}"}
        schema["$defs"][f"a{place}"] = {**following, "dependentSchemas": {"x": following}}
    assert "could not be checked" in checks.problem(schema, '{"x": 1}')


def test_a_schema_that_means_itself_is_given_up_wherever_recursion_ends() -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/a"}
    for _ in range(30):  # in jsonschema, or in the Rust below it
        schema = {"allOf": [schema], "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}
        assert "could not be checked" in checks.problem(schema, "1")
        with pytest.raises(ValueError, match="cannot be told"):
            checks.valid(schema, [1])


@pytest.mark.parametrize("given", [{"a": 1}, ["a"], 5, None])
def test_a_dialect_that_is_no_address_is_refused(given: Any) -> None:
    schema = {"$schema": given, "type": "array", "uniqueItems": True}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    with pytest.raises(InvalidArgument, match=r"\$schema is not what JSON Schema has there"):
        read_form(json.dumps(asked), None, 8192)


def test_constants_beside_a_bound_are_told_by_one_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    own = checks._validator
    monkeypatch.setattr(checks, "_validator", lambda schema: made.append(schema) or own(schema))
    assert checks.valid({"minimum": 3}, range(1000)) == list(range(3, 1000))
    assert len(made) == 1
