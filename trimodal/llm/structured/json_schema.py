"""Turns a JSON Schema into a grammar whose every sentence is valid against it.

The grammar may allow less than the schema: properties come in the schema's order and none that it does not
name, numbers have no exponent, lists and strings have a longest length. What a grammar cannot say is refused
by name, never ignored: then an answer could break the schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import MOST_REPEATS, SEPARATOR, TYPES, Grammar, json_literal
from trimodal.llm.structured.keywords import (
    ANNOTATIONS,
    FORMATS,
    KNOWN,
    OF_TYPE,
    WHOLE,
    constant_tags,
    inside,
    is_of_type,
    shortened,
)
from trimodal.llm.structured.numbers import INTEGER_DIGITS, NUMBER_DIGITS, decimals_of, integers, numbers
from trimodal.triton.fields import shown

MAX_DEPTH = 32
MAX_SCHEMAS = 200
MAX_CHOICES = 500
MAX_BRANCHES = 32  # each may be alive at every token
_MOST_DECIMALS = 6
_INDEX = re.compile("0|[1-9][0-9]{0,4}")  # in a list; Python refuses to read thousands of digits


class SchemaRules:
    """Adds one schema's rules to a grammar.

    Args:
        field: what the client called it, for errors.
    """

    def __init__(self, grammar: Grammar, schema: Mapping[str, Any], field: str) -> None:
        self._grammar = grammar
        self._schema = schema
        self._field = field
        self._schemas = 0
        self._choices = 0
        self._refs: dict[str, str] = {}
        self._open: set[str] = set()  # references that are followed without a value between

    def root(self) -> str:
        """An expression of the whole schema. Raises InvalidArgument: names the keyword and what is wrong."""
        return self._value(self._schema, "", 1)

    def _inner(self, schema: Any, path: str, depth: int) -> str:
        """An expression of values within another value: there a schema may refer to itself."""
        around, self._open = self._open, set()
        expression = self._value(schema, path, depth + 1)
        self._open = around
        return expression

    def _value(self, schema: Any, path: str, depth: int) -> str:
        """An expression of one schema's values."""
        self._schemas += 1
        if self._schemas > MAX_SCHEMAS:
            raise InvalidArgument(f"{self._field} holds more than {MAX_SCHEMAS} schemas")
        if schema is True or schema == {}:
            return self._grammar.shared("value")
        if schema is False:
            raise self._wrong(path, "is false: nothing is valid against it")
        if not isinstance(schema, dict):
            raise self._wrong(path, f"is {shown(schema)}: a schema (an object) is needed")
        if depth > MAX_DEPTH:
            raise InvalidArgument(
                f"{self._field} is nested too deeply: at most {MAX_DEPTH} schemas are taken"
            )
        used = {key for key in schema if key not in ANNOTATIONS}
        if unknown := sorted(used - KNOWN - {*WHOLE, "type"}):
            raise self._wrong(inside(path, unknown[0]), "is not supported: answers could not be held to it")
        whole = [key for key in WHOLE if key in used]
        if whole:
            beside = used - {whole[0]} - ({"type"} if whole[0] in ("enum", "const") else set())
            if beside:
                raise self._wrong(inside(path, whole[0]), f"is not supported beside '{min(beside)}'")
            return self._combined(schema, whole[0], path, depth)
        types = self._types(schema, path)
        if "type" not in schema:  # what a keyword says of one type leaves the others free
            types = [name for name in types if used & OF_TYPE[name]] or list(types)
        elif unfit := sorted(used - {"type"} - set[str]().union(*(OF_TYPE[name] for name in types))):
            raise self._wrong(inside(path, unfit[0]), f"is not for the type {shown(schema['type'])}")
        makers: dict[str, Callable[[Mapping[str, Any], str, int], str]] = {
            "string": self._string, "number": self._number, "integer": self._integer,
            "object": self._object, "array": self._array,
        }  # fmt: skip
        expressions = []
        for name in types:
            plain = name not in makers or not used & OF_TYPE[name]
            expressions.append(self._grammar.shared(name) if plain else makers[name](schema, path, depth))
        return self._grammar.rule(" | ".join(expressions)) if len(expressions) > 1 else expressions[0]

    def _combined(self, schema: Mapping[str, Any], key: str, path: str, depth: int) -> str:
        value, at = schema[key], inside(path, key)
        if key == "$ref":
            return self._reference(value, at, depth)
        if key == "const":
            return self._constants([value], schema, at, path)
        if not isinstance(value, list) or not value:
            raise self._wrong(at, f"is {shown(value)}: a list that is not empty is needed")
        if key == "enum":
            return self._constants(value, schema, at, path)
        if len(value) > MAX_BRANCHES:
            raise self._wrong(at, f"has {len(value)} schemas: at most {MAX_BRANCHES} are taken")
        if key == "allOf" and len(value) > 1:
            raise self._wrong(at, "is supported with one schema only")
        if key == "oneOf" and len(value) > 1 and not self._exclusive(value):
            raise self._wrong(at, "is supported only where a type, or a required constant, tells them apart")
        branches = [self._value(one, f"{at}[{index}]", depth + 1) for index, one in enumerate(value)]
        return self._grammar.rule(" | ".join(dict.fromkeys(branches))) if len(branches) > 1 else branches[0]

    def _reference(self, target: Any, at: str, depth: int) -> str:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise self._wrong(at, f"is {shown(target)}: only references within the schema, #/…, are followed")
        if target in self._open:
            raise self._wrong(at, f"refers to itself without a value between: {shown(target)}")
        if target not in self._refs:
            self._open.add(target)

            def body(name: str) -> str:
                self._refs[target] = name
                path = target.removeprefix("#").removeprefix("/").replace("/", ".")
                return self._value(self._resolved(target, at), path, depth + 1)

            self._grammar.recursive(body)
            self._open.discard(target)
        return self._refs[target]

    def _resolved(self, target: str, at: str) -> Any:
        place: Any = self._schema
        for part in target.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and _INDEX.fullmatch(key) and int(key) < len(place):
                place = place[int(key)]
            elif isinstance(place, dict) and key in place:
                place = place[key]
            else:
                raise self._wrong(at, f"is {shown(target)}: there is no such place")
        return place

    def _types(self, schema: Mapping[str, Any], path: str) -> Sequence[str]:
        given = schema.get("type", list(TYPES))
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list) or not names or not all(name in TYPES for name in names):
            raise self._wrong(inside(path, "type"), f"is {shown(given)}: {', '.join(TYPES)} are known")
        if "number" in names:  # it has the integers
            names = [name for name in names if name != "integer"]
        return list(dict.fromkeys(names))

    def _constants(self, values: Sequence[Any], schema: Mapping[str, Any], at: str, path: str) -> str:
        self._choices += len(values)
        if self._choices > MAX_CHOICES:
            raise InvalidArgument(f"{self._field} has more than {MAX_CHOICES} values in enum and const")
        types = self._types(schema, path)
        fitting = [value for value in values if any(is_of_type(value, name) for name in types)]
        if not fitting:
            raise self._wrong(at, f"has no value of the type {shown(schema.get('type'))}")
        literals = dict.fromkeys(json_literal(value, f"{self._field}: {shortened(at)}") for value in fitting)
        return self._grammar.rule(" | ".join(literals))

    def _exclusive(self, schemas: Sequence[Any]) -> bool:
        """Whether no value can be valid against two of these, as far as types and constant texts tell."""
        branches = [self._followed(one) for one in schemas]
        kinds = [one.get("type") for one in branches]
        named = all(isinstance(kind, str) for kind in kinds)
        if named and len(set(kinds)) == len(kinds) and not {"number", "integer"} <= set(kinds):
            return True
        tags = [constant_tags(one) for one in branches]
        common = set.intersection(*map(set, tags))
        return any(len({tag[name] for tag in tags}) == len(tags) for name in common)

    def _followed(self, schema: Any) -> Mapping[str, Any]:
        """The schema that references lead to; an empty one where there is none."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                break
            schema = self._resolved(schema["$ref"], "$ref")
        return schema if isinstance(schema, dict) else {}

    def _string(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        least = self._count(schema, "minLength", path, 0)
        most = self._count(schema, "maxLength", path, None)
        form = schema.get("format")
        if form is not None:
            if not isinstance(form, str) or form not in FORMATS:
                raise self._wrong(inside(path, "format"), f"is {shown(form)}: {', '.join(FORMATS)} are known")
            if least or most is not None:
                raise self._wrong(inside(path, "format"), "is not supported beside minLength and maxLength")
            return self._grammar.rule(f'"\\"" {FORMATS[form]} "\\""')
        if most is None and not least:
            return self._grammar.shared("string")
        if most is not None and most < least:
            raise self._wrong(inside(path, "maxLength"), f"is {most}: minLength is {least}")
        most = MOST_REPEATS if most is None else min(most, MOST_REPEATS)
        characters = self._grammar.repeated(self._grammar.shared("character"), least, most)
        return self._grammar.rule(f'"\\"" {characters} "\\""')

    def _integer(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        low, above, high, below = self._bounds(schema, path, INTEGER_DIGITS)
        first, last = math.ceil(low), math.floor(high)
        first += above and first == low
        last -= below and last == high
        return self._range(integers(first, last) if first <= last else [], path)

    def _number(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        low, above, high, below = self._bounds(schema, path, NUMBER_DIGITS)
        for key, value in (("minimum", low), ("maximum", high)):
            if decimals_of(value) > _MOST_DECIMALS:
                raise self._wrong(
                    inside(path, key), f"is {value}: at most {_MOST_DECIMALS} decimals are taken"
                )
        expressions = numbers(low, high, above=above, below=below) if low <= high else []
        return self._range(expressions, path)

    def _range(self, expressions: Sequence[str], path: str) -> str:
        if not expressions:
            raise self._wrong(path or "the schema", "has bounds that leave no number between them")
        return self._grammar.rule(" | ".join(expressions))

    def _bounds(
        self, schema: Mapping[str, Any], path: str, digits: int
    ) -> tuple[Decimal, bool, Decimal, bool]:
        """Lowest, whether above it, highest, whether below it."""
        most = Decimal(10**digits - 1)
        low, above = -most, False
        high, below = most, False
        for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            if key not in schema:
                continue
            value = schema[key]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._wrong(inside(path, key), f"is {shown(value)}: a number is needed")
            bound, strict = Decimal(repr(value)), key.startswith("exclusive")
            if abs(bound) > most:
                raise self._wrong(inside(path, key), f"is {shown(value)}: at most {digits} digits are taken")
            if key in ("minimum", "exclusiveMinimum"):
                low, above = max((low, above), (bound, strict))
            else:
                high, lower = min((high, not below), (bound, not strict))
                below = not lower
        return low, above, high, below

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            raise self._wrong(inside(path, "properties"), f"is {shown(properties)}: an object is needed")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise self._wrong(inside(path, "required"), f"is {shown(required)}: a list of names is needed")
        if not isinstance(others, bool | dict):
            raise self._wrong(inside(path, "additionalProperties"), f"is {shown(others)}: a schema is needed")
        if undeclared := [name for name in required if name not in properties]:
            if others is False:
                at = inside(path, "required")
                raise self._wrong(at, f"has {shown(undeclared[0])}, which additionalProperties forbids")
            properties = properties | dict.fromkeys(undeclared, others)
        if not properties:
            return self._map(others, path, depth)
        where = f"{self._field}: {shortened(path)}"
        pairs = [
            (f'{json_literal(name, where)} ":" " "? {self._inner(one, at, depth)}', name in required)
            for name, one in properties.items()
            for at in [inside(path, f"properties.{name}")]
        ]
        return self._grammar.rule(f'"{{" {self._sequence(pairs)} "}}"')

    def _sequence(self, pairs: Sequence[tuple[str, bool]]) -> str:
        """The pairs in their order with separators between; those that are not required may be left out.

        What must be there, and what follows it, is one rule: at the end of a rule xgrammar takes longest.
        """
        start = next((index for index, (_, needed) in enumerate(pairs) if needed), len(pairs))
        later = [
            f"{SEPARATOR} {pair}" if needed else f"({SEPARATOR} {pair})?"
            for pair, needed in pairs[start + 1 :]
        ]
        if start == 0:
            return " ".join([pairs[0][0], *later])
        after, first = '""', '""'
        if start < len(pairs):
            first = self._grammar.rule(" ".join([pairs[start][0], *later]))
            after = self._grammar.rule(f"{SEPARATOR} {first}")
        for pair, _ in reversed(pairs[:start]):
            one = self._grammar.rule(pair)
            first = self._grammar.rule(f"{one} {after} | {first}")
            after = self._grammar.rule(f"{SEPARATOR} {one} {after} | {after}")
        return first

    def _map(self, others: bool | Mapping[str, Any], path: str, depth: int) -> str:
        if others is False:
            return self._grammar.rule('"{}"')
        if others is True:
            return self._grammar.shared("object")
        value = self._inner(others, inside(path, "additionalProperties"), depth)
        pair = self._grammar.rule(f'{self._grammar.shared("string")} ":" " "? {value}')
        return self._grammar.rule(f'"{{" ({pair} ({SEPARATOR} {pair})*)? "}}"')

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        first, items = schema.get("prefixItems", []), schema.get("items", True)
        least = self._count(schema, "minItems", path, 0)
        most = self._count(schema, "maxItems", path, None)
        if most is not None and most < least:
            raise self._wrong(inside(path, "maxItems"), f"is {most}: minItems is {least}")
        if not isinstance(first, list):
            raise self._wrong(inside(path, "prefixItems"), f"is {shown(first)}: a list of schemas is needed")
        if first and (least > len(first) or (items is not False and most != len(first))):
            # A list of given places, as of a tuple: exactly so many, then nothing else can be asked of it.
            at = inside(path, "prefixItems")
            raise self._wrong(at, "is supported with items false, or with maxItems as many as there are")
        if first:
            pairs = [
                (self._inner(one, f"{inside(path, 'prefixItems')}[{index}]", depth), index < least)
                for index, one in enumerate(first[:most])
            ]
            return self._grammar.rule(f'"[" {self._prefix(pairs)} "]"')
        if items is False or most == 0:
            if least:
                raise self._wrong(inside(path, "minItems"), f"is {least}: no item is allowed")
            return self._grammar.rule('"[]"')
        item = self._inner(items, inside(path, "items"), depth)
        following = self._grammar.rule(f"{SEPARATOR} {item}")
        if most is None and least <= 1:
            many = f"{item} {following}*"
        else:
            most = MOST_REPEATS if most is None else min(most, MOST_REPEATS)
            many = f"{item} {self._grammar.repeated(following, max(0, least - 1), most - 1)}"
        return self._grammar.rule(f'"[" {many} "]"' if least else f'"[" ({many})? "]"')

    def _prefix(self, items: Sequence[tuple[str, bool]]) -> str:
        """The items in their order; those beyond the needed ones may be missing from the end."""
        rest = ""
        for index, (item, needed) in reversed(list(enumerate(items))):
            one = f"{SEPARATOR if index else ''} {item} {rest}".strip()
            rest = one if needed else f"({one})?"
        return rest

    def _count(self, schema: Mapping[str, Any], key: str, path: str, default: Any) -> Any:
        value = schema.get(key, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
            raise self._wrong(inside(path, key), f"is {shown(value)}: a whole number is needed")
        if key.startswith("min") and value > MOST_REPEATS:
            raise self._wrong(inside(path, key), f"is {shown(value)}: at most {MOST_REPEATS} is taken")
        return int(value)

    def _wrong(self, path: str, problem: str) -> InvalidArgument:
        return InvalidArgument(f"{self._field}: {shortened(path)} {problem}")
