"""Schemas that are refused by the name of what is wrong; what the others allow is tested on an engine."""

from __future__ import annotations

from typing import Any

import pytest

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema import merging
from trimodal.llm.structured.json_schema.rules import SchemaRules


def grammar_of(schema: Any) -> str:
    grammar = Grammar()
    return grammar.text(SchemaRules(grammar, schema, "field", strict=True).root())


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
    ({"enum": []}, "enum is .*a list of 1 to 1000"),
    ({"enum": list(range(1001))}, "enum is .*a list of 1 to 1000"),
    ({"pattern": 3}, "pattern is 3: a regular expression"),
    ({"pattern": "^(?!a)"}, "pattern has a look-around"),
    ({"pattern": "(a"}, "pattern is no regular expression that is understood"),
    ({"pattern": "^[a-z]{2}$", "maxLength": 1, "type": "string"}, "leaves no text of 0 to 1 characters"),
    ({"not": {"pattern": "a"}}, "not is not supported with patterns"),
    ({"if": {"pattern": "a"}, "then": False}, "if is not supported with patterns"),
    ({"$dynamicRef": "#a"}, "dynamicRef is not supported"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "pattern is there twice"),
    ({"anyOf": [False]}, "anyOf is false: nothing is valid"),
    ({"anyOf": [{"type": "string", "pattern": "(?=a)"}, {"type": "null"}]}, "pattern has a look-around"),
    ({"type": "integer", "multipleOf": 0}, "multipleOf is 0: a number above 0"),
    ({"type": "integer", "minimum": 1, "maximum": 2, "multipleOf": 3}, "leaves no number"),
    ({"type": "integer", "minimum": 2, "maximum": 1}, "leaves no number between"),
    ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, "leaves no number between"),
    ({"type": "number", "minimum": 10**19}, "asks for more than 18 digits"),
    ({**OBJECT, "properties": {"a": False}, "required": ["a"]}, "required has 'a', which nothing"),
    ({**OBJECT, "required": ["a"], "additionalProperties": False}, "required has 'a', which nothing"),
    (
        {**OBJECT, "properties": {"a": {}}, "patternProperties": {"^b": {}}},
        "patternProperties is not supported",
    ),
    ({**OBJECT, "patternProperties": {"^a": 3}}, "field: patternProperties is 3: a schema"),
    ({**OBJECT, "minProperties": 2, "maxProperties": 1}, "maxProperties is 1: minProperties is 2"),
    ({**OBJECT, "properties": {f"p{i}": {} for i in range(1000)}}, "more than 1000 schemas"),
    ({"enum": 3}, "enum is 3"),
    ({"allOf": [{"const": 0}, {"const": False}]}, "the schema is false: nothing is valid"),
    ({"allOf": [{"enum": [1]}, {"enum": [True]}]}, "the schema is false: nothing is valid"),
    ({"enum": ["a"], "type": "integer"}, "enum has no value of the type 'integer'"),
    ({"anyOf": [{}] * 33}, "anyOf has 33 schemas: at most 32"),
    ({"$ref": "https://example.com/a"}, "only references within the schema"),
    ({"$ref": "#/$defs/a"}, "no such place"),
    ({"$ref": 3}, r"\$ref is 3"),
    ({"items": {"$ref": f"#/required/{'9' * 5000}"}, "required": ["a"]}, "there is no such place"),
    ({"items": {"$ref": "#/required/٣"}, "required": ["a"] * 4}, "there is no such place"),
    ({"$ref": "#"}, "refers to itself without a value between"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}, "refers to itself"),
    ({"type": "string", "minLength": -1}, "minLength is -1: a whole number"),
    ({"type": "string", "minLength": 1.5}, "minLength is 1.5"),
    ({"type": "string", "minLength": True}, "minLength is True"),
    ({"type": "string", "minLength": 5000}, "minLength is 5000: at most 4096"),
    ({"type": "string", "minLength": 5, "maxLength": 4}, "maxLength is 4: minLength is 5"),
    ({"type": "integer", "minimum": "1"}, "minimum is '1': a number"),
    ({**OBJECT, "properties": []}, r"properties is \[\]: an object"),
    ({**OBJECT, "properties": {"a": 1}}, "properties.a is 1: a schema"),
    ({**OBJECT, "required": "a"}, "required is 'a'"),
    ({**OBJECT, "additionalProperties": 3}, "additionalProperties is 3"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "maxItems is 2: minItems is 3"),
    ({"type": "array", "items": False, "minItems": 1}, "minItems is 1: only 0 items are allowed"),
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


def test_what_one_schema_of_many_says_alone_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []
    own = merging._schemas
    monkeypatch.setattr(merging, "_schemas", lambda *both: looked.append(both) or own(*both))
    many = [{"properties": {f"a{index}": {"const": index}}} for index in range(100)]
    closed = {"properties": {"a5": {"type": "integer"}}, "additionalProperties": False}
    grammar_of({"type": "object", "allOf": [*many, closed]})
    assert len(looked) == 100  # one that both have, and all that the last one does not
