"""Reads all that a request asks of its answer's form: `response_format` and `tools`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.form import Check, Form, FormMaker
from trimodal.llm.structured.reading import is_strict, read_json
from trimodal.llm.structured.tools import Tools, text_or_calls
from trimodal.triton.fields import shown

_FIELD = "response_format"
_KEYS = {
    "text": {"type"},
    "json_object": {"type"},
    "json_schema": {"type", "json_schema"},
}
_SCHEMA_KEYS = {"name", "description", "schema", "strict"}


def read_form(
    response_format: str | None, tools: Tools | None, most_bytes: int, calls: str = "hermes"
) -> Form:
    """The form of an answer.

    Args:
        calls: how the model calls functions in free text. Other ways than Hermes' are left to it, unless a
            function is strict: a grammar would not let special tokens through.

    Raises:
        InvalidArgument: a field is malformed, or strict and cannot be kept, or of more than `most_bytes`.
    """
    wanted = _read_format(response_format) if response_format is not None else None
    if tools and calls != "hermes" and tools.choice == "auto" and not tools.strict and not wanted:
        return Form()
    form = _form(wanted, tools, FormMaker(most_bytes))
    if len(form.grammar) > most_bytes:
        size = len(form.grammar)
        form = _form(wanted, tools, FormMaker(most_bytes, loose=True))
        if len(form.grammar) > most_bytes:
            field = "tools" if tools and tools.offered else _FIELD
            problem = f"its grammar has {size} bytes, max_grammar_bytes is {most_bytes}"
            raise InvalidArgument(f"{field} is too complex: {problem}")
    return form


def _form(wanted: Mapping[str, Any] | None, tools: Tools | None, maker: FormMaker) -> Form:
    root, answer = _response_root(maker, wanted) if wanted else ("", None)
    checks: dict[str, Check] = {}
    if tools and tools.choice != "none":
        calls, checks = tools.calls(maker)
        if tools.choice != "auto":
            root, answer = calls, None
        else:
            root = f"{root} | {calls}" if root else text_or_calls(maker.grammar, calls)
    free = not root or (tools is not None and tools.choice == "auto" and not wanted)
    return Form(maker.grammar.text(root) if root else "", answer, checks, free, tuple(maker.unheld))


def _read_format(text: str) -> Mapping[str, Any] | None:
    """A response format; None: it asks for any text. Raises InvalidArgument: it is malformed."""
    given = read_json(_FIELD, text)
    if not isinstance(given, dict):
        raise InvalidArgument(f"{_FIELD} is {shown(given)}: an object with a type is needed")
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InvalidArgument(f"{_FIELD}: type is {shown(kind)}: one of {', '.join(_KEYS)} is needed")
    if unknown := sorted(set(given) - _KEYS[kind]):
        known = ", ".join(sorted(_KEYS[kind]))
        raise InvalidArgument(f"{_FIELD} has an unknown key {shown(unknown[0])}: {known}")
    return None if kind == "text" else given


def _response_root(maker: FormMaker, wanted: Mapping[str, Any]) -> tuple[str, Check | None]:
    """An expression of the answers that a response format allows, and its check.

    Raises:
        InvalidArgument: its schema is malformed, or strict and cannot be kept.
    """
    if wanted["type"] == "json_object":
        return maker.grammar.shared("object"), None
    named = wanted.get("json_schema")
    if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
        raise InvalidArgument(f'{_FIELD}: json_schema must be an object with a "schema", which is an object')
    if unknown := sorted(set(named) - _SCHEMA_KEYS):
        raise InvalidArgument(
            f"{_FIELD}: json_schema has an unknown key {shown(unknown[0])}: {', '.join(sorted(_SCHEMA_KEYS))}"
        )
    return maker.schema(named["schema"], _FIELD, strict=is_strict(named, f"{_FIELD}: json_schema"))
