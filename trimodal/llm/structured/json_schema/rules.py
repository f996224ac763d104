"""Turns a JSON Schema into a grammar whose every sentence is valid against it.

The grammar may allow less than the schema: properties come in the schema's order and none that it does not
name, numbers have no exponent, lists and strings have a longest length. What a grammar cannot say is left
out: of a strict schema only where the whole answer is held against it, else it is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import MOST_REPEATS, SEPARATOR, Grammar, json_text, literal, one_text
from trimodal.llm.structured.json_schema.bounds import number
from trimodal.llm.structured.json_schema.checks import can_tell, valid
from trimodal.llm.structured.json_schema.keywords import (
    ANNOTATIONS,
    KNOWN,
    LATER,
    NOT_FOLLOWED,
    OF_TYPE,
    TYPES,
    WHOLE,
    Unheld,
    inside,
    is_of_type,
    shortened,
)
from trimodal.llm.structured.json_schema.references import References
from trimodal.llm.structured.json_schema.strings import count, format_of, string
from trimodal.triton.fields import shown

MAX_DEPTH = 32
MAX_SCHEMAS = 1000
MAX_CHOICES = 1000
MAX_BRANCHES = 32  # each may be alive at every token


class SchemaRules:
    """Adds one schema's rules to a grammar.

    Args:
        field: what the client called it, for errors.
        strict: whether all that it says must be kept.

    Attributes:
        later: the places that a whole answer has to be held against; only of a strict one.
        unheld: the places that nothing holds.
    """

    def __init__(self, grammar: Grammar, schema: Mapping[str, Any], field: str, *, strict: bool) -> None:
        self.later: dict[str, None] = {}
        self.unheld: dict[str, None] = {}
        self._grammar = grammar
        self._schema = schema
        self._field = field
        self._strict = strict
        self._schemas = 0
        self._references = References(schema)
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
        """An expression of one schema's values, without the keywords that cannot be kept."""
        self._schemas += 1
        if self._schemas > MAX_SCHEMAS:
            return self._anything(f"holds more than {MAX_SCHEMAS} schemas")
        if depth > MAX_DEPTH:
            return self._anything(f"is nested too deeply: at most {MAX_DEPTH} schemas are taken")
        if schema is True or schema == {}:
            return self._grammar.shared("value")
        if schema is False:
            return self._anything("is false: nothing is valid against it", path)
        if not isinstance(schema, dict):
            return self._anything(f"is {shown(schema)}: a schema (an object) is needed", path)
        while True:
            try:
                return self._kept(schema, path, depth)
            except Unheld as unheld:
                self._leave_out(unheld, schema[unheld.key], path)
                schema = {key: value for key, value in schema.items() if key != unheld.key}

    def _anything(self, problem: str, path: str | None = None) -> str:
        """Any value, where a schema cannot be kept at all. Raises InvalidArgument: it is strict."""
        if self._strict:
            place = self._field if path is None else f"{self._field}: {shortened(path)}"
            raise InvalidArgument(f"{place} {problem}")
        self.unheld[shortened(path or "")] = None
        return self._grammar.shared("value")

    def _leave_out(self, unheld: Unheld, value: Any, path: str) -> None:
        """Notes a keyword that the grammar does not keep. Raises InvalidArgument: it must be kept."""
        place = shortened(inside(path, unheld.key))
        if not self._strict:
            self.unheld[place] = None
        elif unheld.later and can_tell(value, self._schema):
            self.later[place] = None
        else:
            raise InvalidArgument(f"{self._field}: {place} {unheld}")

    def _kept(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        """An expression of a schema of which every keyword can be kept. Raises Unheld: one that cannot."""
        used = {key for key in schema if key not in ANNOTATIONS}
        for key in sorted(used & LATER):
            if key != "uniqueItems" or schema[key] is not False:
                raise Unheld(key, "is not supported with patterns", later=True)
        for key in NOT_FOLLOWED:
            if key in used:
                raise Unheld(key, "is not supported: only $ref is followed")
        # What JSON Schema does not know is a remark to it, and so is a format.
        remarks = {"format"} if "format" in used and not format_of(schema) else set()
        self.unheld.update(dict.fromkeys(shortened(inside(path, key)) for key in remarks | used - KNOWN))
        for key in WHOLE:
            if key in used:
                return self._combined(schema, key, path, depth)
        types = self._types(schema)
        if "type" not in schema:  # what a keyword says of one type leaves the others free
            types = [name for name in types if used & OF_TYPE[name]] or list(types)
        expressions = [self._of_type(name, schema, path, depth) for name in types]
        return self._grammar.rule(" | ".join(expressions))

    def _of_type(self, name: str, schema: Mapping[str, Any], path: str, depth: int) -> str:
        if not OF_TYPE[name] & set(schema):
            return self._grammar.shared(name)
        if name == "string":
            return string(self._grammar, schema)
        if name in ("number", "integer"):
            return number(self._grammar, schema, whole=name == "integer")
        return (self._object if name == "object" else self._array)(schema, path, depth)

    def _combined(self, schema: Mapping[str, Any], key: str, path: str, depth: int) -> str:
        """An expression of a keyword that brings schemas or values of its own, with what is beside it."""
        value, at = schema[key], inside(path, key)
        beside = {name: one for name, one in schema.items() if name != key and name not in ANNOTATIONS}
        if key in ("const", "enum"):
            return self._constants(value if key == "enum" else [value], beside, key)
        if key == "$ref":
            resolved = self._references.resolved(value)
            if not beside:
                return self._reference(value, resolved, at, depth)
            return self._value(self._together([resolved, beside], key, path), path, depth + 1)
        if key == "if":
            # Each way by itself; which one is right the whole answer tells.
            ways = [[value, schema.get("then", True)], [schema.get("else", True)]]
            self._leave_out(Unheld(key, "is not supported with patterns", later=True), ways, path)
            return self._any_of([self._together([beside, *way], key, path) for way in ways], at, depth)
        if not isinstance(value, list) or not value:
            raise Unheld(key, f"is {shown(value)}: a list that is not empty is needed")
        if key == "allOf":
            return self._value(self._together([beside, *value], key, path), path, depth + 1)
        if len(value) > MAX_BRANCHES:
            raise Unheld(key, f"has {len(value)} schemas: at most {MAX_BRANCHES} are taken")
        if key == "oneOf" and len(value) > 1 and not self._references.exclusive(value):
            problem = "is not supported with patterns, unless a type or a required constant tells them apart"
            self._leave_out(Unheld(key, problem, later=True), value, path)
        return self._any_of([self._together([beside, one], key, path) for one in value], at, depth)

    def _together(self, schemas: Sequence[Any], key: str, path: str) -> Any:
        schema, missing = self._references.together(schemas, key)
        for name in sorted(missing):
            later = name not in ("pattern", "patternProperties")
            self._leave_out(Unheld(name, f"is there twice, by {key}", later=later), schemas, path)
        return schema

    def _any_of(self, schemas: Sequence[Any], at: str, depth: int) -> str:
        """Those alternatives that can be kept.

        A text whose pattern cannot be kept may be left out, as of Pydantic's Decimal: it is a number, too.
        """
        expressions: dict[str, None] = {}
        refused = None
        for index, one in enumerate(schemas):
            if one is False:
                continue
            try:
                expressions[self._value(one, f"{at}[{index}]", depth + 1)] = None
            except InvalidArgument as error:
                if not isinstance(one, dict) or one.get("type") != "string":
                    raise
                refused = error
        if refused and not set(expressions) - {"null"}:
            raise refused
        return self._grammar.rule(" | ".join(expressions)) if expressions else self._value(False, at, depth)

    def _reference(self, target: str, schema: Any, at: str, depth: int) -> str:
        if target in self._open:
            return self._anything(f"refers to itself without a value between: {shown(target)}", at)
        if target not in self._refs:
            self._open.add(target)

            def body(name: str) -> str:
                self._refs[target] = name
                path = target.removeprefix("#").removeprefix("/").replace("/", ".")
                return self._value(schema, path, depth + 1)

            self._grammar.recursive(body)
            self._open.discard(target)
        return self._refs[target]

    def _types(self, schema: Mapping[str, Any]) -> Sequence[str]:
        given = schema.get("type", TYPES)
        names = [given] if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else []
        if not names or not all(name in TYPES for name in names):
            raise Unheld("type", f"is {shown(given)}: {', '.join(TYPES)} are known")
        if "number" in names:  # it has the integers
            names = [name for name in names if name != "integer"]
        return list(dict.fromkeys(names))

    def _constants(self, values: Any, beside: Mapping[str, Any], key: str) -> str:
        if not isinstance(values, list) or not 0 < len(values) <= MAX_CHOICES:
            raise Unheld(key, f"is {shown(values)}: a list of 1 to {MAX_CHOICES} values is needed")
        types = self._types(beside)
        values = [value for value in values if any(is_of_type(value, name) for name in types)]
        others = {name: one for name, one in beside.items() if name != "type"}
        if others:
            name = min(others)
            if not can_tell(others, self._schema):
                raise Unheld(name, f"is not supported beside '{key}'")
            try:
                values = valid(others, values)
            except ValueError:
                raise Unheld(name, f"is not supported beside '{key}'", later=True) from None
        if not values:
            raise Unheld(key, f"has no value of the type {shown(beside.get('type'))}")
        try:
            return self._grammar.rule(one_text(map(json_text, values)))
        except ValueError as error:
            raise Unheld(key, str(error), later=True) from None

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others, least = schema.get("additionalProperties", True), count(schema, "minProperties", 0)
        most = count(schema, "maxProperties", None)
        if not isinstance(properties, dict):
            raise Unheld("properties", f"is {shown(properties)}: an object is needed")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise Unheld("required", f"is {shown(required)}: a list of names is needed")
        if not isinstance(others, bool | dict):
            raise Unheld("additionalProperties", f"is {shown(others)}: a schema is needed")
        properties = properties | dict.fromkeys((name for name in required if name not in properties), others)
        for name in required:
            if properties[name] is False:
                raise Unheld("required", f"has {shown(name)}, which nothing is valid for")
        if not any(one is not False for one in properties.values()):
            if properties and (others is not False or schema.get("patternProperties")):
                raise Unheld("properties", "is not supported where it only forbids", later=True)
            return self._map(schema, others, least, most, path, depth)
        if schema.get("patternProperties"):
            raise Unheld("patternProperties", "is not supported beside properties")
        for key, kept in (
            ("propertyNames", False),
            ("minProperties", least <= len(required)),
            ("maxProperties", most is None or most >= len(properties)),
        ):
            if key in schema and not kept:
                raise Unheld(key, "is not supported beside properties", later=True)
        pairs = [
            (f'{literal(json_text(name))} ":" " "? {self._inner(one, at, depth)}', name in required)
            for name, one in properties.items()
            for at in [inside(path, f"properties.{name}")]
            if one is not False
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

    def _map(
        self, schema: Mapping[str, Any], others: Any, least: int, most: int | None, path: str, depth: int
    ) -> str:
        """An object without names of its own: any, or those of patterns."""
        if least > 1:  # a name may come twice
            self._leave_out(Unheld("minProperties", "is not supported here", later=True), None, path)
        names, at = schema.get("propertyNames", {}), inside(path, "propertyNames")
        patterns = schema.get("patternProperties", {})
        if not isinstance(patterns, dict) or not isinstance(names, dict | bool):
            key = "propertyNames" if isinstance(patterns, dict) else "patternProperties"
            raise Unheld(key, f"is {shown(schema[key])}: an object is needed")
        if len(patterns) > 1 or (patterns and names):
            raise Unheld("patternProperties", "is not supported with several patterns")
        if most is not None and most < least:
            raise Unheld("maxProperties", f"is {most}: minProperties is {least}")
        if (others is False and not patterns) or names is False or most == 0:
            if least:
                raise Unheld("minProperties", f"is {least}: no property is allowed")
            return self._grammar.rule('"{}"')
        of_values = inside(path, "additionalProperties")
        if patterns:
            # Others may be allowed, too: these are enough.
            (pattern, others), *_ = patterns.items()
            names = {"pattern": pattern}
            at = of_values = inside(path, "patternProperties")
        elif others is True and not names and not least and most is None:
            return self._grammar.shared("object")
        name = self._value({**({} if names is True else names), "type": "string"}, at, depth + 1)
        value = self._inner(others, of_values, depth)
        pair = self._grammar.rule(f'{name} ":" " "? {value}')
        return self._grammar.rule(f'"{{" {self._many(pair, least, most)} "}}"')

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> str:
        first, items = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(items, list):  # before 2020
            first, items = items, schema.get("additionalItems", True)
        least, most = count(schema, "minItems", 0), count(schema, "maxItems", None)
        if most is not None and most < least:
            raise Unheld("maxItems", f"is {most}: minItems is {least}")
        if not isinstance(first, list):
            raise Unheld("prefixItems", f"is {shown(first)}: a list of schemas is needed")
        if False in first:
            first, items = first[: first.index(False)], False
        fixed = [
            self._inner(one, f"{inside(path, 'prefixItems')}[{index}]", depth)
            for index, one in enumerate(first[:most])
        ]
        if items is False or (most is not None and most <= len(fixed)):
            if least > len(fixed):
                raise Unheld("minItems", f"is {least}: only {len(fixed)} items are allowed")
            rest = ""
        else:
            item = self._inner(items, inside(path, "items"), depth)
            more = None if most is None else most - len(fixed)
            rest = self._many(item, max(0, least - len(fixed)), more, after=bool(fixed))
        for index, one in reversed(list(enumerate(fixed))):
            rest = f"{SEPARATOR if index else ''} {one} {rest}".strip()
            if index >= least:
                rest = f"({rest})?"
        return self._grammar.rule(f'"[" {rest} "]"')

    def _many(self, one: str, least: int, most: int | None, *, after: bool = False) -> str:
        """So many of one thing with separators between; `after`: something stands before the first."""
        following = self._grammar.rule(f"{SEPARATOR} {one}")
        if after:
            return self._times(following, least, most)
        many = f"{one} {self._times(following, max(0, least - 1), None if most is None else most - 1)}"
        return many if least else f"({many})?"

    def _times(self, name: str, least: int, most: int | None) -> str:
        if most is None:
            return f"{self._grammar.repeated(name, least, least)} {name}*" if least else f"{name}*"
        return self._grammar.repeated(name, least, min(most, MOST_REPEATS))
