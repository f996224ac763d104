"""Holds whole answers against what no grammar says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from trimodal.llm.structured.json_schema.keywords import shortened

_MOST_REFERENCES = 2_000  # followed in one check: a schema can make them double with each level of an answer
_MAPS = ("properties", "$defs", "definitions", "dependentSchemas")
_OLD = re.compile(r'"additionalItems":|"items": \[')
_VALUES = ("enum", "const", "default", "examples")


def problem(schema: Mapping[str, Any], text: str) -> str:
    """What is wrong with an answer in JSON, the end of a sentence; "": nothing."""
    try:
        return _first_error(schema, json.loads(text))
    except (ValueError, ArithmeticError, RecursionError) as error:
        return f"could not be checked: {type(error).__name__}"


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is valid, patterns aside. Raises ValueError: that cannot be told."""
    return not _first_error(schema, value)


def can_tell(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether answers can be held against the value of a keyword of a schema.

    Not where it may have a regular expression: on one, Python could spend minutes.
    """
    text = json.dumps(value)
    return '"pattern' not in (json.dumps(schema) if '"$ref"' in text else text)


def fault(schema: Mapping[str, Any]) -> str:
    """Where a schema breaks JSON Schema itself, the end of a sentence; "": nowhere."""
    from jsonschema.exceptions import best_match

    kind = _dialect(schema)
    error = best_match(kind(kind.META_SCHEMA).iter_errors(schema))
    place = error and shortened(".".join(map(str, error.absolute_path)))
    return f"{place} is not what JSON Schema has there" if error else ""


def _first_error(schema: Mapping[str, Any], value: Any) -> str:
    """Raises ValueError: a reference leads nowhere, or too many have to be followed."""
    # Imported here: a server whose clients ask for nothing of this kind needs it not.
    from jsonschema.exceptions import best_match
    from jsonschema.validators import Draft7Validator, extend
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = _dialect(schema)
    followed = 0

    def reference(validator: Any, target: Any, instance: Any, schema: Any) -> Iterator[Any]:
        nonlocal followed
        followed += 1
        if followed > _MOST_REFERENCES:
            raise ValueError("too many references")
        yield from kind.VALIDATORS["$ref"](validator, target, instance, schema)

    more = {"$ref": reference, "multipleOf": _multiple}
    checked = extend(kind, {**more, "dependencies": Draft7Validator.VALIDATORS["dependencies"]})
    try:
        # An empty registry: the default one would ask the network for what it does not know.
        error = best_match(checked(_without_patterns(schema), registry=Registry()).iter_errors(value))
    except Unresolvable as unresolvable:
        raise ValueError("a reference leads nowhere") from unresolvable
    if error is None:
        return ""
    place = shortened(".".join(map(str, error.absolute_path)) or "its root")
    return f"broke '{error.validator}' at {place}"


def _dialect(schema: Mapping[str, Any]) -> Any:
    """The validator of a schema's own draft; without one, of the last that has its keywords."""
    from jsonschema.validators import Draft201909Validator, Draft202012Validator, validator_for

    return validator_for(
        schema, Draft201909Validator if _OLD.search(json.dumps(schema)) else Draft202012Validator
    )


def _multiple(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Exact, unlike with floats: 19.99 is a multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(step)):
        yield ValidationError(f"{instance} is not a multiple of {step}")


def _without_patterns(schema: Any) -> Any:
    """The schema without what the grammar has held already and only regular expressions could tell again."""
    if isinstance(schema, list):
        return [_without_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"pattern", "patternProperties"}
    if "patternProperties" in schema:
        dropped |= {"additionalProperties", "unevaluatedProperties"}
    result = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            result[key] = {name: _without_patterns(one) for name, one in value.items()}
        elif key not in dropped:
            result[key] = value if key in _VALUES else _without_patterns(value)
    return result
