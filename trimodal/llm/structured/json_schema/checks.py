"""Holds whole answers against what no grammar says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from trimodal.llm.structured.json_schema.keywords import frozen, shortened

_MOST_WORK = 50_000
"""Keywords that one check looks at, and values in them: a schema can ask for minutes of it, and meanwhile no
stream gets a token."""
_MOST_LISTED = 64  # of a schema's lists, where it is held against JSON Schema: all may be compared with all
_MAPS = ("properties", "$defs", "definitions", "dependentSchemas")
_OLD = re.compile(r'"additionalItems":|"items": \[')
_VALUES = ("enum", "const", "default", "examples")


def problem(schema: Mapping[str, Any], text: str) -> str:
    """What is wrong with an answer in JSON, the end of a sentence; "": nothing."""
    try:
        return _first_error(_validator(schema), json.loads(text))
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return f"could not be checked: {type(error).__name__}"


def valid(schema: Mapping[str, Any], values: Iterable[Any]) -> list[Any]:
    """Those of some values that are valid, patterns aside.

    Raises:
        ValueError: that cannot be told.
    """
    validator = _validator(schema)
    try:
        return [value for value in values if not _first_error(validator, value)]
    except Exception as error:  # the schema was not held against JSON Schema: a keyword may have any value
        raise ValueError("it cannot be told which values are valid") from error


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
    shown = json.loads(json.dumps(schema), object_hook=_shortened_lists)
    error = best_match(kind(kind.META_SCHEMA).iter_errors(shown))
    place = error and shortened(".".join(map(str, error.absolute_path)))
    return f"{place} is not what JSON Schema has there" if error else ""


def _shortened_lists(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one[:_MOST_LISTED] if isinstance(one, list) else one for key, one in schema.items()}


def _first_error(validator: Any, value: Any) -> str:
    """Raises ValueError: a reference leads nowhere, or it is too much work."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable as unresolvable:
        raise ValueError("a reference leads nowhere") from unresolvable
    except BaseException as panic:
        # rpds (2026.9, under jsonschema) panics where Python's recursion ends within it, no Exception:
        # "not": {"$ref": "#"} ended the thread that follows the engine, and all requests hung.
        if type(panic).__module__ == "pyo3_runtime":
            raise RecursionError from None
        raise
    if error is None:
        return ""
    place = shortened(".".join(map(str, error.absolute_path)) or "its root")
    return f"broke '{error.validator}' at {place}"


def _validator(schema: Mapping[str, Any]) -> Any:
    """What tells the errors of values, until it is too much work."""
    # Imported here: a server whose clients ask for nothing of this kind needs it not.
    from jsonschema.validators import Draft7Validator, extend
    from referencing import Registry

    kind = _dialect(schema)
    work = 0

    def count(values: int) -> None:
        nonlocal work
        work += 1 + values
        if work > _MOST_WORK:
            raise ValueError("too much to check")

    def counted(check: Any) -> Any:
        def keyword(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            count(len(value) if isinstance(value, list | dict) else 0)
            return check(validator, value, instance, schema)

        return keyword

    def is_boolean(_: Any, value: Any) -> bool:
        """Asked of each schema also where unevaluatedProperties follows references past the keywords."""
        count(0)
        return isinstance(value, bool)

    own = {"multipleOf": _multiple, "uniqueItems": _unique}
    own["dependencies"] = Draft7Validator.VALIDATORS["dependencies"]
    keywords = {name: counted(check) for name, check in {**kind.VALIDATORS, **own}.items()}
    checked = extend(kind, keywords, type_checker=kind.TYPE_CHECKER.redefine("boolean", is_boolean))
    # An empty registry: the default one would ask the network for what it does not know.
    return checked(_without_patterns(schema), registry=Registry())


def _dialect(schema: Mapping[str, Any]) -> Any:
    """The validator of a schema's own draft; without one, of the last that has its keywords."""
    from jsonschema.validators import Draft201909Validator, Draft202012Validator, validator_for

    last = Draft201909Validator if _OLD.search(json.dumps(schema)) else Draft202012Validator
    try:
        return validator_for(schema, last)
    except (AttributeError, TypeError, ValueError):  # it is no address
        return last


def _multiple(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Exact, unlike with floats: 19.99 is a multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(step)):
        yield ValidationError(f"{instance} is not a multiple of {step}")


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """In one pass, unlike the library's, which compares each with each."""
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(instance, list) and len(set(map(frozen, instance))) < len(instance):
        yield ValidationError("two items are equal")


def _without_patterns(schema: Any) -> Any:
    """The schema without what the grammar has held already and only regular expressions could tell again.

    What patternProperties say of values is held: of an object with them the grammar takes their names alone.
    And without `$schema`, at which the library would take a validator of its own.
    """
    if isinstance(schema, list):
        return [_without_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"pattern", "patternProperties", "$schema"}
    if "patternProperties" in schema:
        dropped |= {"additionalProperties", "unevaluatedProperties"}
    result = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            result[key] = {name: _without_patterns(one) for name, one in value.items()}
        elif key not in dropped:
            result[key] = value if key in _VALUES else _without_patterns(value)
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict) and len(patterns) == 1:
        (values,) = patterns.values()
        result["additionalProperties"] = _without_patterns(values)
    return result
