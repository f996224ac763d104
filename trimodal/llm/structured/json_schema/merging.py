"""Makes one schema of several that hold at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from trimodal.llm.structured.json_schema.keywords import ANNOTATIONS, TYPES, frozen

Schema = Mapping[str, Any]
_REST = object()  # an item that prefixItems do not reach
_LARGER = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"}
_SMALLER = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"}


def merged(one: Schema, other: Schema) -> tuple[dict[str, Any], set[str]]:
    """A schema of what both allow, and the keywords of `other` that it does not say."""
    result = {**other, **one}
    missing = set()
    properties = _properties(one, other)
    if properties:
        result["properties"] = properties
    done = ANNOTATIONS | {"properties"}
    if "prefixItems" in result:
        result |= _items(one, other)
        done |= {"prefixItems", "items"}
    for key in set(one) & set(other) - done:
        if _alike(one[key], other[key]):
            continue
        try:
            result[key] = _both(key, one[key], other[key])
        except (KeyError, TypeError):
            if key in ("anyOf", "oneOf", "$ref", "if"):  # beside each other
                parts = {name: other[name] for name in (key, "then", "else") if name in other}
                result["allOf"] = [*result.get("allOf", []), parts if key == "if" else {key: other[key]}]
            else:
                missing.add(key)
    return result, missing


def _alike(one: Any, other: Any) -> bool:
    return bool(frozen(one) == frozen(other))


def _both(key: str, one: Any, other: Any) -> Any:
    """The value of a keyword that says what two values say. Raises KeyError: there is none."""
    if key in _LARGER:
        return max(one, other)
    if key in _SMALLER:
        return min(one, other)
    return _MERGED[key](one, other)


def _types(one: Any, other: Any) -> list[str]:
    """Raises KeyError: no type is in both."""
    first, second = ([given] if isinstance(given, str) else list(given) for given in (one, other))
    both = [name for name in TYPES if name in first and name in second]
    if "integer" not in both and {"integer", "number"} <= {*first, *second}:
        both.append("integer")
    if not both:
        raise KeyError("type")
    return both


def _listed(one: Any, other: Any) -> list[Any]:
    others = set(map(frozen, other))
    both = [value for value in one if frozen(value) in others]
    if not both:
        raise KeyError("enum")
    return both


def _schemas(one: Any, other: Any) -> Any:
    """What two schemas allow."""
    if one is False or other is False:
        return False
    if one is True or one == {} or _alike(one, other):
        return other
    return one if other is True or other == {} else {"allOf": [one, other]}


def _properties(one: Schema, other: Schema) -> dict[str, Any]:
    """Every property by what both schemas say of it, be it in additionalProperties."""
    listed: list[Mapping[str, Any]] = [schema.get("properties", {}) for schema in (one, other)]
    if not all(isinstance(properties, dict) for properties in listed):
        raise TypeError("properties")
    first, second = listed
    result = {**first, **second}
    for name in first.keys() & second.keys():
        result[name] = _schemas(first[name], second[name])
    for own, others, rest in ((first, second, other), (second, first, one)):
        unnamed = rest.get("additionalProperties", True)
        if unnamed not in (True, {}):  # of many schemas each would be looked at with all before it
            for name in own.keys() - others.keys():
                result[name] = _schemas(own[name], unnamed)
    return result


def _items(one: Schema, other: Schema) -> dict[str, Any]:
    """Every item by what both schemas say of it, be it in `items`."""
    listed: list[list[Any]] = [schema.get("prefixItems", []) for schema in (one, other)]
    rest = [schema.get("items", True) for schema in (one, other)]
    if not all(isinstance(first, list) for first in listed) or any(isinstance(of, list) for of in rest):
        raise TypeError("prefixItems")
    pairs = zip_longest(*listed, fillvalue=_REST)
    first = [
        _schemas(*(of if given is _REST else given for given, of in zip(pair, rest, strict=True)))
        for pair in pairs
    ]
    return {"prefixItems": first, "items": _schemas(*rest)}


_MERGED: dict[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": _listed,
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    "allOf": lambda one, other: [*one, *other],
    "uniqueItems": lambda one, other: one or other,
    "items": _schemas,
    "additionalProperties": _schemas,
    "propertyNames": _schemas,
}
