"""Lists the keywords of JSON Schema that can be kept, and what is said of a schema by its own words alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_PATH = 120  # characters of a place, in an error
_DATE = '[12] [0-9]{3} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
_TIME = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] "Z"'
_HEX = "[0-9a-f]"
_WORD = "[a-z0-9]{1,16}"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": f'{_HEX}{{8}} "-" {_HEX}{{4}} "-4" {_HEX}{{3}} "-" [89ab] {_HEX}{{3}} "-" {_HEX}{{12}}',
    "email": f'{_WORD} ("." {_WORD})? "@" {_WORD} "." [a-z]{{2,8}}',
    "ipv4": ' "." '.join(['([1-9]? [0-9] | "1" [0-9] [0-9])'] * 4),
}
ANNOTATIONS = frozenset(
    {
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator",
        "$schema", "$id", "$comment", "$defs", "definitions",
    }
)  # fmt: skip
OF_TYPE = {
    "string": {"minLength", "maxLength", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "boolean": set[str](),
    "null": set[str](),
}
KNOWN = frozenset[str]().union(*OF_TYPE.values())
WHOLE = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")
_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "number": (int, float), "integer": int, "boolean": bool, "null": type(None),
    "object": dict, "array": list,
}  # fmt: skip


def shortened(path: str) -> str:
    """A place as an error names it.

    The client chose its names: long ones, and lone surrogates, in which no error could be sent.
    """
    text = path.encode("utf-8", "backslashreplace").decode() or "the schema"
    half = _MOST_PATH // 2
    return text if len(text) <= _MOST_PATH else f"{text[:half]}…{text[-half:]}"


def inside(path: str, key: str) -> str:
    """The place of a key within a place."""
    return f"{path}.{key}" if path else key


def constant_tags(schema: Mapping[str, Any]) -> dict[str, str]:
    """The required properties that have one constant text, and that text."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    tags = {}
    for name, one in properties.items():
        values = [one["const"]] if isinstance(one, dict) and "const" in one else []
        if name in required and values and isinstance(values[0], str):
            tags[name] = values[0]
    return tags


def is_of_type(value: Any, name: str) -> bool:
    """Whether a value is of one of JSON Schema's types."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON_TYPES[name])
