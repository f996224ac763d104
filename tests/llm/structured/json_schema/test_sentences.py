"""What a grammar lets a model write, drawn at random and held against the schema by `jsonschema`."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator, extend, validator_for

from tests.llm.structured.schemas import SCHEMAS
from tests.llm.structured.sentences import Sentences
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.form import Form

DRAWN = 40


def form_of(schema: Any, *, strict: bool = True) -> Form:
    given = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}
    return read_form(json.dumps(given), None, 1 << 15)


def validator(schema: Any) -> Any:
    """By jsonschema, but for its multipleOf of floats: to it 19.99 is no multiple of 0.01."""
    kind = validator_for(schema, Draft202012Validator)

    def multiple(validator: Any, step: Any, value: Any, schema: Any) -> Any:
        if isinstance(value, int | float) and Decimal(repr(value)) % Decimal(repr(step)):
            yield AssertionError(f"{value} is no multiple of {step}")

    return extend(kind, {"multipleOf": multiple})(schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_sentence_is_valid(name: str) -> None:
    form, schema = form_of(SCHEMAS[name]), validator(SCHEMAS[name])
    kept, made = 0, Sentences(form.grammar)
    for seed in range(DRAWN):
        text = made.draw(seed)
        if not form.problem(text):
            kept += 1
            assert next(schema.iter_errors(json.loads(text)), None) is None, text
    assert kept == DRAWN if not form.is_checked else kept > 0


@pytest.mark.parametrize("name", SCHEMAS)
def test_none_is_refused_that_is_not_strict(name: str) -> None:
    form = form_of(SCHEMAS[name], strict=False)
    assert not form.is_checked
    assert bool(form.unheld) >= form_of(SCHEMAS[name]).is_checked  # what is not checked is named
    json.loads(Sentences(form.grammar).draw(1))


def test_what_only_a_whole_answer_tells_is_named() -> None:
    form = form_of({"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}})
    assert form.problem('{"tags": [1, 2]}') == ""
    assert form.problem('{"tags": [1, 1]}') == "response_format: the answer broke 'uniqueItems' at tags"


def test_what_is_below_patterns_of_names_is_held_against_whole_answers() -> None:
    below = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    form = form_of({"type": "object", "patternProperties": {"^[a-z]$": below}, "additionalProperties": False})
    assert form.problem('{"a": [1, 2], "b": [1]}') == ""
    assert "broke 'uniqueItems' at b" in form.problem('{"a": [1, 2], "b": [1, 1]}')


def test_a_schema_that_would_follow_references_without_end_is_given_up() -> None:
    twice = [{"$ref": "#"}, {"$ref": "#"}]
    form = form_of({"type": "object", "properties": {"a": {"oneOf": twice}}, "not": {"required": ["b"]}})
    assert "could not be checked" in form.problem('{"a": ' * 40 + "1" + "}" * 40)
