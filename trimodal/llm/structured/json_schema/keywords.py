"""Lists the keywords of JSON Schema, and what is said of a schema by its own words alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_PATH = 120  # characters of a place, in an error
ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "$dynamicAnchor"),
        *("$vocabulary", "discriminator", "contentEncoding", "contentMediaType", "contentSchema"),
        # Nothing without another, which is looked at.
        *("minContains", "maxContains", "then", "else", "additionalItems"),
    }
)  # fmt: skip
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
OF_TYPE = {
    "string": {"minLength", "maxLength", "format", "pattern"},
    "number": _BOUNDS,
    "integer": _BOUNDS,
    "object": {
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "minProperties", "maxProperties",
    },
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "boolean": set[str](),
    "null": set[str](),
}  # fmt: skip
LATER = frozenset(
    {
        "not", "uniqueItems", "contains", "dependentRequired", "dependentSchemas", "dependencies",
        "unevaluatedProperties", "unevaluatedItems",
    }
)  # fmt: skip
"""What no grammar here says; a whole answer can be held against it."""
WHOLE = ("$ref", "allOf", "if", "anyOf", "oneOf", "const", "enum")
NOT_FOLLOWED = ("$dynamicRef", "$recursiveRef")
KNOWN = frozenset({"type", *WHOLE, *LATER, *NOT_FOLLOWED}).union(*OF_TYPE.values())
TYPES = tuple(OF_TYPE)
_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "number": (int, float), "integer": int, "boolean": bool, "null": type(None),
    "object": dict, "array": list,
}  # fmt: skip


class Unheld(Exception):
    """A keyword that a grammar cannot keep.

    Attributes:
        key: the keyword, of the schema that is being read.
        problem: the end of a sentence that begins with the keyword's place.
        later: whether a whole answer can be held against it.
    """

    def __init__(self, key: str, problem: str, *, later: bool = False) -> None:
        super().__init__(problem)
        self.key, self.problem, self.later = key, problem, later


def shortened(path: str) -> str:
    """A place as an error names it: the client chose its names, and long ones."""
    text = path or "the schema"
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


def frozen(value: Any) -> Any:
    """A value as JSON Schema compares it: 1 is 1.0 and not true."""
    if isinstance(value, list):
        return "list", *map(frozen, value)
    if isinstance(value, dict):
        return "object", frozenset((name, frozen(one)) for name, one in value.items())
    return (type(value), value) if isinstance(value, bool) else value


def is_of_type(value: Any, name: str) -> bool:
    """Whether a value is of one of JSON Schema's types."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON_TYPES[name])
