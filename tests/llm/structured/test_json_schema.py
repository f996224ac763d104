"""Schemas that are refused by the name of what is wrong; what the others allow is tested on an engine."""

from __future__ import annotations

from typing import Any

import pytest

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema import SchemaRules


def grammar_of(schema: Any) -> str:
    grammar = Grammar()
    return grammar.text(SchemaRules(grammar, schema, "field").root())


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


OBJECT = {"type": "object"}
BAD = [
    ({"type": "text"}, "field: type is 'text': string, number"),
    ({"type": []}, r"type is \[\]"),
    ({"type": {"a": 1}}, "type is {'a': 1}"),
    ({"pattern": "a"}, "pattern is not supported"),
    ({"not": {}}, "not is not supported"),
    ({"if": {}, "then": {}}, "if is not supported"),
    ({"uniqueItems": True, "type": "array"}, "uniqueItems is not supported"),
    ({"type": "integer", "multipleOf": 3}, "multipleOf is not supported"),
    ({"type": "integer", "maxLength": 3}, "maxLength is not for the type 'integer'"),
    ({"anyOf": [{}], "type": "string"}, "anyOf is not supported beside 'type'"),
    ({"enum": []}, "enum is .*a list that is not empty"),
    ({"enum": 3}, "enum is 3"),
    ({"enum": ["a"], "maxLength": 3}, "enum is not supported beside 'maxLength'"),
    ({"enum": ["a"], "type": "integer"}, "enum has no value of the type 'integer'"),
    ({"enum": list(range(501))}, "more than 500 values"),
    ({"anyOf": [{}] * 33}, "anyOf has 33 schemas: at most 32"),
    ({"allOf": [{}, {}]}, "allOf is supported with one schema only"),
    ({"oneOf": [{"type": "object"}, {"type": "object"}]}, "oneOf is supported only where"),
    ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf is supported only where"),
    ({"oneOf": [True, True]}, "oneOf is supported only where"),
    ({"$ref": "https://example.com/a"}, "only references within the schema"),
    ({"$ref": "#/$defs/a"}, "no such place"),
    ({"$ref": 3}, r"\$ref is 3"),
    ({"items": {"$ref": f"#/required/{'9' * 5000}"}, "required": ["a"]}, "there is no such place"),
    ({"items": {"$ref": "#/required/٣"}, "required": ["a"] * 4}, "there is no such place"),
    ({"\ud800": 1}, r"\\ud800 is not supported"),
    ({"items": {"$ref": "#/$defs/\ud800"}, "$defs": {"\ud800": {"not": {}}}}, r"\$defs\.\\ud800\.not is"),
    ({"x" * 70_000: 1}, "x…x{60} is not supported"),
    ({"$ref": "#"}, "refers to itself without a value between"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "refers to itself"),
    ({"type": "string", "minLength": -1}, "minLength is -1: a whole number"),
    ({"type": "string", "minLength": 1.5}, "minLength is 1.5"),
    ({"type": "string", "minLength": True}, "minLength is True"),
    ({"type": "string", "minLength": 5000}, "minLength is 5000: at most 4096"),
    ({"type": "string", "minLength": 5, "maxLength": 4}, "maxLength is 4: minLength is 5"),
    ({"type": "string", "format": "color"}, "format is 'color': date"),
    ({"type": "string", "format": "date", "maxLength": 3}, "format is not supported beside"),
    ({"type": "integer", "minimum": "1"}, "minimum is '1': a number"),
    ({"type": "integer", "minimum": 2, "maximum": 1}, "leave no number between"),
    ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "leave no number between"),
    ({"type": "integer", "minimum": 10**15}, "at most 15 digits"),
    ({"type": "number", "minimum": 1e10}, "at most 9 digits"),
    ({"type": "number", "minimum": 0.1234567}, "at most 6 decimals"),
    ({"type": "number", "minimum": 1e-300}, "at most 6 decimals"),
    ({**OBJECT, "properties": []}, r"properties is \[\]: an object"),
    ({**OBJECT, "properties": {"a": 1}}, "properties.a is 1: a schema"),
    ({**OBJECT, "properties": {"a": False}}, "properties.a is false: nothing is valid"),
    ({**OBJECT, "required": "a"}, "required is 'a'"),
    ({**OBJECT, "required": ["a"], "additionalProperties": False}, "required has 'a'"),
    ({**OBJECT, "additionalProperties": 3}, "additionalProperties is 3"),
    ({**OBJECT, "minProperties": 1}, "minProperties is not supported"),
    ({**OBJECT, "patternProperties": {}}, "patternProperties is not supported"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "maxItems is 2: minItems is 3"),
    ({"type": "array", "items": False, "minItems": 1}, "minItems is 1: no item is allowed"),
    ({"type": "array", "items": [{}]}, r"items is \[{}\]: a schema"),
    ({"type": "array", "prefixItems": [{}], "items": {}}, "prefixItems is supported with items false"),
    ({**OBJECT, "properties": {f"p{i}": {} for i in range(200)}}, "more than 200 schemas"),
    (nested(40), "nested too deeply: at most 32"),
]


@pytest.mark.parametrize(("schema", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_what_cannot_be_kept_is_refused_by_name(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        grammar_of(schema)


def test_annotations_change_nothing() -> None:
    said = {"title": "A", "description": "b", "default": 1, "examples": [1], "$comment": "c", "$schema": "d"}
    assert grammar_of({"type": "integer", **said}) == grammar_of({"type": "integer"})


def test_a_schema_may_refer_to_itself_below_a_value() -> None:
    tree = {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#"}}}}
    assert "r1" in grammar_of(tree)


def test_one_of_is_taken_where_only_one_can_be_meant() -> None:
    kinds = [
        {**OBJECT, "properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in ("cat", "dog")
    ]
    defined = {"$defs": {"cat": kinds[0], "dog": kinds[1]}}
    assert grammar_of({"oneOf": kinds}) == grammar_of({"anyOf": kinds})
    grammar_of({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], **defined})
    grammar_of({"oneOf": [{"type": "string"}, {"type": "null"}]})
