"""Schemas as clients send them: JSON Schema's own tests, Pydantic, Zod, OpenAI's documents."""

from __future__ import annotations

import datetime
import enum
import uuid
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, conint, conlist, constr

OBJECT = {"type": "object", "additionalProperties": False}
_TEXT = {"type": "string", "maxLength": 12}
_SAFE = {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}


def _object(**properties: Any) -> dict[str, Any]:
    return {**OBJECT, "properties": properties, "required": list(properties)}


# github.com/json-schema-org/JSON-Schema-Test-Suite, draft 2020-12, by file; texts are bounded.
_SUITE: dict[str, Any] = {
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 3,
    },
    "allOf": {
        "allOf": [
            {"properties": {"bar": {"type": "integer"}}, "required": ["bar"]},
            {"properties": {"foo": _TEXT}, "required": ["foo"]},
        ],
        "type": "object",
        "additionalProperties": True,
    },
    "allOf, base schema": {
        "properties": {"bar": {"type": "integer"}},
        "required": ["bar"],
        "type": "object",
        "allOf": [
            {"properties": {"foo": _TEXT}, "required": ["foo"]},
            {"properties": {"baz": {"type": "null"}}},
        ],
    },
    "allOf of items, some of them by number": {
        "type": "array",
        "allOf": [
            {"prefixItems": [{"type": "integer"}]},
            {"items": {"type": "number", "minimum": 2}},
        ],
    },
    "allOf of items by number": {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "items": {"minimum": 2},
        "allOf": [{"prefixItems": [{}, {"type": "integer"}, {"type": "number"}], "items": False}],
    },
    "allOf, 0 is not false": {
        "type": "object",
        "properties": {"a": {"allOf": [{"enum": [0, 1, True]}, {"enum": [False, True, 1.0]}]}},
        "required": ["a"],
    },
    "properties that are forbidden": {
        "type": "object",
        "properties": {"a": False},
        "propertyNames": {"enum": ["a", "b"]},
        "additionalProperties": {"type": "null"},
    },
    "anyOf": {"anyOf": [{"type": "integer"}, {"type": "number", "minimum": 2}]},
    "anyOf, base schema": {"type": "string", "anyOf": [{"maxLength": 2}, {"minLength": 4, "maxLength": 9}]},
    "const": {"const": {"foo": "bar", "baz": [1, None, 2.5]}},
    "contains": {
        "type": "array",
        "items": {"enum": [1, 5]},
        "contains": {"const": 5},
        "maxItems": 4,
        "minItems": 2,
    },
    "dependentRequired": {
        **OBJECT,
        "properties": {"bar": {"type": "null"}, "foo": {"type": "null"}},
        "dependentRequired": {"bar": ["foo"]},
    },
    "enum": {"enum": [6, "foo", [], True, {"foo": 12}]},
    "exclusiveMinimum": {"type": "number", "exclusiveMinimum": 1.1, "exclusiveMaximum": 3.0},
    "if-then-else": {
        **OBJECT,
        "properties": {"k": {"enum": ["a", "b"]}, "v": {"type": ["integer", "null"]}},
        "required": ["k"],
        "if": {"properties": {"k": {"const": "a"}}},
        "then": {"required": ["v"]},
    },
    "infinite-loop-detection": {
        "$defs": {"int": {"type": "integer"}},
        "type": "object",
        "required": ["foo"],
        "allOf": [
            {"properties": {"foo": {"$ref": "#/$defs/int"}}},
            {"additionalProperties": {"$ref": "#/$defs/int"}},
        ],
    },
    "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    "items of 2019": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "type": "array",
        "items": [{"type": "integer"}, _TEXT],
        "additionalItems": {"type": "null"},
        "minItems": 2,
        "maxItems": 4,
    },
    "maxProperties": {
        "type": "object",
        "maxProperties": 2,
        "minProperties": 1,
        "additionalProperties": {"type": "null"},
    },
    "multipleOf": {"type": "integer", "multipleOf": 7},
    "multipleOf by number": {"type": "number", "multipleOf": 1.5, "minimum": 0},
    "not": {"type": ["integer", "null", "boolean"], "not": {"const": None}},
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 2}]},
    "oneOf with required": {
        **OBJECT,
        "properties": {"foo": {"type": "null"}, "bar": {"type": "null"}},
        "oneOf": [{"required": ["foo"]}, {"required": ["bar"]}],
    },
    "pattern": {"type": "string", "pattern": "^a*$"},
    "pattern is not anchored": {"type": "string", "pattern": "a+", "maxLength": 10},
    "patternProperties": {
        "type": "object",
        "patternProperties": {"^f.{0,3}$": {"type": "integer"}},
        "maxProperties": 2,
    },
    "prefixItems": {
        "type": "array",
        "prefixItems": [{"type": "integer"}, _TEXT],
        "items": False,
        "minItems": 1,
    },
    "propertyNames": {
        "type": "object",
        "propertyNames": {"maxLength": 3},
        "additionalProperties": {"type": "null"},
        "maxProperties": 3,
    },
    "ref": {"$ref": "#/$defs/a~1b%25c", "$defs": {"a/b%c": {"type": "integer"}}},
    "ref beside maxItems": {
        "$ref": "#/$defs/list",
        "maxItems": 2,
        "$defs": {"list": {"type": "array", "items": {"type": "null"}}},
    },
    "uniqueItems": {
        "type": "array",
        "items": {"enum": ["a", "b", "c", "d"]},
        "uniqueItems": True,
        "maxItems": 3,
        "minItems": 1,
    },
    "format": _object(a={"type": "string", "format": "uri"}, b={"type": "string", "format": "ipv6"}),
    "unevaluatedProperties": {
        "type": "object",
        "properties": {"foo": {"type": "null"}},
        "unevaluatedProperties": False,
        "required": ["foo"],
    },
}
# z.toJSONSchema of Zod 4.
_ZOD: dict[str, Any] = {
    "z.int": _object(id=_SAFE),
    "z.int.positive": _object(n={"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}),
    "z.string.regex": _object(sku={"type": "string", "pattern": "^[A-Z]{3}-\\d{4}$"}),
    "z.startsWith": _object(id={"type": "string", "pattern": "^cus_.*", "maxLength": 12}),
    "z.email": _object(
        email={
            "type": "string",
            "format": "email",
            "pattern": r"^[A-Za-z0-9_'+\-\.]{1,12}@([A-Za-z0-9][A-Za-z0-9\-]{0,9}\.)+[A-Za-z]{2,5}$",
        }
    ),
    "z.uuid": _object(
        id={
            "type": "string",
            "format": "uuid",
            "pattern": "^([0-9a-f]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$",
        }
    ),
    "z.url": _object(url={"type": "string", "format": "uri"}),
    "z.iso.duration": _object(d={"type": "string", "format": "duration"}),
    "z.record": {
        "type": "object",
        "propertyNames": {"type": "string", "maxLength": 5},
        "additionalProperties": {"type": "boolean"},
        "minProperties": 1,
        "maxProperties": 2,
    },
    "z.tuple": {
        "type": "array",
        "prefixItems": [{"type": "string", "maxLength": 5}, {"type": "number"}],
        "minItems": 2,
        "maxItems": 2,
    },
    "z.intersection": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]},
        ]
    },
    "z.discriminatedUnion": {
        "oneOf": [
            _object(t={"type": "string", "const": one}, v=value)
            for one, value in (("n", {"type": "integer"}), ("s", _TEXT))
        ]
    },
    "z.nullable": _object(a={"anyOf": [_TEXT, {"type": "null"}]}),
    "z.multipleOf": _object(price={"type": "number", "multipleOf": 0.01, "minimum": 0}),
}
# platform.openai.com/docs/guides/structured-outputs: the keywords that strict schemas have there.
_OPENAI: dict[str, Any] = {
    "steps": _object(
        steps={"type": "array", "maxItems": 2, "items": _object(explanation=_TEXT, output=_TEXT)},
        final_answer=_TEXT,
    ),
    "ui, recursive": {
        **_object(
            type={"type": "string", "enum": ["div", "button", "header"]},
            children={"type": "array", "maxItems": 1, "items": {"$ref": "#"}},
        )
    },
    "linked list": {
        **_object(list={"$ref": "#/$defs/node"}),
        "$defs": {
            "node": _object(
                value={"type": "boolean"}, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}
            )
        },
    },
    "username": _object(
        username={"type": "string", "pattern": "^@[a-zA-Z0-9_]{1,12}$"},
        email={"type": "string", "format": "email"},
    ),
    "weather": _object(
        temperature={"type": "number", "minimum": -130, "maximum": 130},
        unit={"type": ["string", "null"], "enum": ["C", "F", None]},
    ),
    "formats": _object(
        **{name: {"type": "string", "format": name} for name in ("date-time", "time", "date", "duration")}
    ),
    "formats of networks": _object(
        **{name: {"type": "string", "format": name} for name in ("email", "hostname", "ipv4", "ipv6", "uuid")}
    ),
    "an enum of 300": _object(code={"type": "string", "enum": [f"C{number:03d}" for number in range(300)]}),
}


class Kind(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Item(BaseModel):
    """As Pydantic writes it."""

    id: uuid.UUID
    price: Decimal = Field(ge=0, max_digits=6, decimal_places=2)
    tags: set[Literal["a", "b", "c"]]
    kind: Kind | None = None


class Person(BaseModel):
    name: constr(min_length=1, max_length=9, pattern=r"^[A-Z]")  # type: ignore[valid-type]
    age: conint(ge=0, le=120, multiple_of=5)  # type: ignore[valid-type]
    born: datetime.date
    scores: dict[Annotated[str, Field(pattern="^[a-z]{1,3}$")], float] = Field(max_length=2)


class Visit(BaseModel):
    at: datetime.datetime
    took: datetime.timedelta
    where: AnyUrl
    pair: tuple[int, bool]
    points: conlist(int, min_length=1, max_length=3)  # type: ignore[valid-type]


class Tree(BaseModel):
    value: bool
    below: list[Tree] = Field(max_length=1)


class Move(BaseModel):
    """A union that a field tells apart, in a list of bounded length."""

    kind: Literal["move"] = "move"
    to: tuple[int, int]


class Wait(BaseModel):
    kind: Literal["wait"] = "wait"
    seconds: Annotated[float, Field(gt=0, le=60)]


class Plan(BaseModel):
    steps: Annotated[
        list[Annotated[Move | Wait, Field(discriminator="kind")]], Field(min_length=1, max_length=3)
    ]


class Reading(BaseModel):
    address: IPv4Address
    taken: datetime.time
    level: Annotated[int, Field(ge=-40, lt=85, multiple_of=5)] | None


class Order(BaseModel):
    """References to one definition from two places, and a map of numbers."""

    model_config = ConfigDict(extra="forbid")
    paid_by: Wait
    sent_to: Wait | None
    amounts: Annotated[dict[Literal["a", "b"], Annotated[int, Field(ge=0, le=9)]], Field(max_length=2)]


class Flags(BaseModel):
    model_config = ConfigDict(extra="forbid")
    on: bool
    mask: Annotated[str, Field(pattern=r"^[01]{4}$")]
    names: Annotated[list[Literal["x", "y"]], Field(min_length=2, max_length=2)]


SCHEMAS: dict[str, dict[str, Any]] = {
    **{f"suite: {name}": one for name, one in _SUITE.items()},
    **{f"zod: {name}": one for name, one in _ZOD.items()},
    **{f"openai: {name}": one for name, one in _OPENAI.items()},
    **{
        f"pydantic: {one.__name__}": one.model_json_schema()
        for one in (Item, Person, Visit, Tree, Plan, Reading, Order, Flags)
    },
}
