"""Reads the functions that a model may call, and makes the grammar of its calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.call_text import CALL_BEGINS, CALL_TAIL, call_head
from trimodal.llm.structured.form import Check, FormMaker
from trimodal.llm.structured.grammar import Grammar, literal, one_of
from trimodal.llm.structured.reading import is_strict, read_json
from trimodal.triton.fields import shown

CHOICES = ("none", "auto", "required")
MAX_TOOLS = 64
MAX_CALLS = 8
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEYS = {"name", "description", "parameters", "strict"}
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class Tools:
    """Functions, as OpenAI and chat templates have them.

    Attributes:
        choice: "none", "auto" (an answer or calls), "required", or "function": the one in `named`.
        parallel: whether there may be several calls in one answer.
        strict: the functions whose parameters must be kept whole, or the request is refused.
    """

    functions: tuple[Mapping[str, Any], ...]
    choice: str
    named: str = ""
    parallel: bool = True
    strict: frozenset[str] = frozenset()

    @property
    def offered(self) -> tuple[Mapping[str, Any], ...]:
        """What the prompt tells the model of."""
        return () if self.choice == "none" else self.functions

    def calls(self, maker: FormMaker) -> tuple[str, dict[str, Check]]:
        """An expression: the calls of an answer; and what their arguments are to be held against, by name.

        Raises:
            InvalidArgument: a schema is strict, or its call is asked for, and it cannot be kept.
        """
        made, checks = [], {}
        for index, tool in enumerate(self.functions):
            function, field = tool["function"], f"tools[{index}].function.parameters"
            name, schema = function["name"], {"type": "object", **function["parameters"]}
            if self.named not in ("", name):
                continue
            if schema["type"] != "object":
                raise InvalidArgument(f"{field}: type is {shown(schema['type'])}: 'object' is needed")
            strict = self.choice != "auto" or name in self.strict
            arguments, check = maker.schema(schema, field, strict=strict)
            if check:
                checks[name] = check
            made.append(maker.grammar.rule(f"{literal(call_head(name))} {arguments} {literal(CALL_TAIL)}"))
        call = maker.grammar.rule(one_of(made))
        if self.named or not self.parallel:
            return call, checks
        return f'{call} ("\\n" {call}){{0,{MAX_CALLS - 1}}}', checks


def read_tools(tools: str | None, choice: str | None, parallel: bool | None) -> Tools | None:
    """The functions of a request; None: there are none.

    Raises:
        InvalidArgument: one is malformed, or the choice names none of them.
    """
    if tools is None:
        for name, value in (("tool_choice", choice), ("parallel_tool_calls", parallel)):
            if value is not None and value != "none":
                raise InvalidArgument(f"{name} is given without tools")
        return None
    given = read_json("tools", tools)
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_TOOLS:
        raise InvalidArgument(f"tools must be a list of 1 to {MAX_TOOLS} functions")
    functions = tuple(_function(f"tools[{index}]", one) for index, one in enumerate(given))
    strict = [is_strict(one["function"], f"tools[{index}].function") for index, one in enumerate(given)]
    names = [one["function"]["name"] for one in functions]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidArgument(f"tools has two functions {shown(twice[0])}: each name once is needed")
    kind, named = _choice(choice, names)
    kept = frozenset(name for name, one in zip(names, strict, strict=True) if one)
    return Tools(functions, kind, named, parallel is not False, kept)


def text_or_calls(grammar: Grammar, calls: str) -> str:
    """An expression: any text, and calls after it, if any; only calls begin with <tool_call>."""
    after = ""
    for place in range(len(CALL_BEGINS) - 1, 0, -1):
        expected = CALL_BEGINS[place]
        other = f"[^<{expected}] [^<]*"
        last = place == len(CALL_BEGINS) - 1
        after = grammar.rule(f'"" | {other}' if last else f'"" | {other} | {literal(expected)} {after}')
    return f'[^<]* ("<" {after})* ({calls})?'


def _function(field: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict) or given.get("type") != "function" or set(given) != {"type", "function"}:
        raise InvalidArgument(f'{field} must be {{"type": "function", "function": {{"name": …}}}}')
    function = given["function"]
    if not isinstance(function, dict):
        raise InvalidArgument(f"{field}.function must be an object with a name")
    if unknown := sorted(set(function) - _KEYS):
        raise InvalidArgument(
            f"{field}.function has an unknown key {shown(unknown[0])}: {', '.join(sorted(_KEYS))} are known"
        )
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidArgument(
            f"{field}.function.name is {shown(name)}: 1 to 64 of a-z A-Z 0-9 _ - are needed"
        )
    if not isinstance(description, str | None):
        raise InvalidArgument(f"{field}.function.description must be a text")
    if not isinstance(function.get("parameters"), dict | None):
        raise InvalidArgument(f"{field}.function.parameters must be a JSON Schema, which is an object")
    read = {
        "name": name,
        "description": description or "",
        "parameters": function.get("parameters") or _NO_PARAMETERS,
    }
    return {"type": "function", "function": read}


def _choice(given: str | None, names: Sequence[str]) -> tuple[str, str]:
    """One of CHOICES and "", or "function" and its name."""
    if given is None or given in CHOICES:
        return given or "auto", ""
    value = read_json("tool_choice", given) if given.lstrip().startswith("{") else None
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if name not in names:
        wanted = (
            f'{", ".join(CHOICES)} or {{"type": "function", "function": {{"name": one of tools}}}} is needed'
        )
        raise InvalidArgument(f"tool_choice is {shown(given)}: {wanted}")
    return "function", str(name)
