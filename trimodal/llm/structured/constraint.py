"""Makes one grammar of all that a request asks of its answer's form: `response_format` and `tools`."""

from __future__ import annotations

from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema import SchemaRules
from trimodal.llm.structured.reading import read_json
from trimodal.llm.structured.tools import Tools, text_or_calls
from trimodal.triton.fields import shown

_FIELD = "response_format"
_KEYS = {
    "text": {"type"},
    "json_object": {"type"},
    "json_schema": {"type", "json_schema"},
}
_SCHEMA_KEYS = {"name", "description", "schema", "strict"}  # only the schema changes anything


def constraint(response_format: str | None, tools: Tools | None, most_bytes: int) -> str:
    """The grammar of an answer; "": any text.

    Raises:
        InvalidArgument: a field is malformed or cannot be kept, or the grammar has more than `most_bytes`.
    """
    grammar = Grammar()
    root = _response_root(grammar, response_format) if response_format is not None else ""
    if tools and tools.choice != "none":
        calls = tools.calls(grammar)
        if tools.choice != "auto":
            root = calls
        else:
            root = f"{root} | {calls}" if root else text_or_calls(grammar, calls)
    text = grammar.text(root) if root else ""
    if len(text) > most_bytes:
        field = "tools" if tools else "response_format"
        raise InvalidArgument(
            f"{field} is too complex: its grammar has {len(text)} bytes, max_grammar_bytes is {most_bytes}"
        )
    return text


def _response_root(grammar: Grammar, text: str) -> str:
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
