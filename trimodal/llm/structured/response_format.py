"""Reads `response_format`, OpenAI's form: free text, any JSON object, or JSON of a schema."""

from __future__ import annotations

from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema import SchemaRules
from trimodal.llm.structured.reading import read_json
from trimodal.triton.fields import shown

_FIELD = "response_format"
_KEYS = {
    "text": {"type"},
    "json_object": {"type"},
    "json_schema": {"type", "json_schema"},
}
_SCHEMA_KEYS = {"name", "description", "schema", "strict"}  # only the schema changes anything


def response_root(grammar: Grammar, text: str) -> str:
    """An expression of the answers that a response format allows; "": any text.

    Raises:
        InvalidArgument: it is malformed, or its schema cannot be kept.
    """
    given = read_json(_FIELD, text)
    if not isinstance(given, dict):
        raise InvalidArgument(f"{_FIELD} is {shown(given)}: an object with a type is needed")
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InvalidArgument(f"{_FIELD}: type is {shown(kind)}: one of {', '.join(_KEYS)} is needed")
    if unknown := sorted(set(given) - _KEYS[kind]):
        known = ", ".join(sorted(_KEYS[kind]))
        raise InvalidArgument(f"{_FIELD} has an unknown key {shown(unknown[0])}: {known}")
    if kind == "text":
        return ""
    if kind == "json_object":
        return grammar.shared("object")
    return SchemaRules(grammar, _schema(given.get("json_schema")), _FIELD).root()


def _schema(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not isinstance(given.get("schema"), dict):
        raise InvalidArgument(f'{_FIELD}: json_schema must be an object with a "schema", which is an object')
    if unknown := sorted(set(given) - _SCHEMA_KEYS):
        raise InvalidArgument(
            f"{_FIELD}: json_schema has an unknown key {shown(unknown[0])}: {', '.join(sorted(_SCHEMA_KEYS))}"
        )
    schema: dict[str, Any] = given["schema"]
    return schema
