"""Makes the expression of a string's characters: its length, its pattern, its format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimodal.llm.structured.grammar import MOST_REPEATS, Grammar
from trimodal.llm.structured.json_schema.keywords import Unheld
from trimodal.llm.structured.json_schema.patterns import pattern_expression
from trimodal.triton.fields import shown

_DATE = '[12] [0-9]{3} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
_TIME = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] "Z"'
_HEX = "[0-9a-f]"
_WORD = "[a-z0-9]{1,16}"
_EMAIL = f'{_WORD} ("." {_WORD})? "@" {_WORD} "." [a-z]{{2,8}}'
_HOST = f'{_WORD} ("-" {_WORD})? ("." {_WORD} ("-" {_WORD})?){{0,3}}'
_PATH = '("/" [a-zA-Z0-9_.~-]{1,32}){0,6}'
_URI = f'"http" "s"? "://" {_WORD} ("-" {_WORD})? ("." {_WORD}){{0,2}} "." [a-z]{{2,8}} {_PATH}'
_UUID = f'{_HEX}{{8}} "-" {_HEX}{{4}} "-4" {_HEX}{{3}} "-" [89ab] {_HEX}{{3}} "-" {_HEX}{{12}}'
_NUMBER = '("0" | [1-9] [0-9]{0,3})'
_CLOCK = (
    f'"T" ({_NUMBER} "H" ({_NUMBER} "M" ({_NUMBER} "S")?)? | {_NUMBER} "M" ({_NUMBER} "S")? | {_NUMBER} "S")'
)
_POINTER = '("/" [a-zA-Z0-9_-]{1,16}){0,6}'
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "duration": f'"P" ({_NUMBER} "W" | {_NUMBER} "D" ({_CLOCK})? | {_CLOCK})',
    "uuid": _UUID,
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOST,
    "idn-hostname": _HOST,
    "ipv4": ' "." '.join(['([1-9]? [0-9] | "1" [0-9] [0-9])'] * 4),
    "ipv6": f'{_HEX}{{1,4}} (":" {_HEX}{{1,4}}){{7}}',
    "uri": _URI,
    "iri": _URI,
    "uri-reference": f'({_URI} | "/" [a-z0-9]{{1,16}} {_PATH})',
    "iri-reference": f'({_URI} | "/" [a-z0-9]{{1,16}} {_PATH})',
    "uri-template": f'{_URI} ("/{{" [a-z]{{1,16}} "}}")?',
    "json-pointer": _POINTER,
    "relative-json-pointer": f"{_NUMBER} {_POINTER}",
    "regex": "[a-z0-9]{1,32}",
}
"""Those of JSON Schema, each narrower than it is there; any other is a remark, as JSON Schema has it."""


def string(grammar: Grammar, schema: Mapping[str, Any]) -> str:
    """An expression of the strings of a schema. Raises Unheld."""
    least, most = count(schema, "minLength", 0), count(schema, "maxLength", None)
    if most is not None and most < least:
        raise Unheld("maxLength", f"is {most}: minLength is {least}")
    pattern, form = schema.get("pattern"), format_of(schema)
    bounds = [key for key in ("minLength", "maxLength") if key in schema]
    if pattern is not None:
        if not isinstance(pattern, str):
            raise Unheld("pattern", f"is {shown(pattern)}: a regular expression is needed")
        try:
            expression, kept = pattern_expression(grammar, pattern, least, most)
        except ValueError as error:
            raise Unheld("pattern", str(error)) from None
        if not kept:
            raise Unheld(bounds[-1], "is not supported beside this pattern", later=True)
        return grammar.rule(f'"\\"" {expression} "\\""')
    if form:
        if bounds:
            raise Unheld(bounds[-1], "is not supported beside a format", later=True)
        return grammar.rule(f'"\\"" {form} "\\""')
    if most is None and not least:
        return grammar.shared("string")
    most = MOST_REPEATS if most is None else min(most, MOST_REPEATS)
    characters = grammar.repeated(grammar.shared("character"), least, most)
    return grammar.rule(f'"\\"" {characters} "\\""')


def format_of(schema: Mapping[str, Any]) -> str | None:
    """The expression of a schema's format; None: it has none, or what JSON Schema does not know."""
    form = schema.get("format")
    return FORMATS.get(form) if isinstance(form, str) else None


def count(schema: Mapping[str, Any], key: str, default: Any) -> Any:
    """A whole number that a keyword gives. Raises Unheld: it is none, or too many to be asked for."""
    value = schema.get(key, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise Unheld(key, f"is {shown(value)}: a whole number is needed")
    if key.startswith("min") and value > MOST_REPEATS:
        raise Unheld(key, f"is {shown(value)}: at most {MOST_REPEATS} is taken")
    return int(value)
