"""Defines the form of an answer: the grammar that it follows, and what it is held against when whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.call_text import CALL_BEGINS
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema.checks import fault, problem
from trimodal.llm.structured.json_schema.rules import SchemaRules

_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Check:
    """A schema that a grammar keeps in part, and what the client called it."""

    field: str
    schema: Mapping[str, Any]

    def problem(self, text: str) -> str:
        """What is wrong with a value in JSON, a sentence; "": nothing."""
        wrong = problem(self.schema, text)
        return wrong and f"{self.field}: the answer {wrong}"


@dataclass(frozen=True)
class Form:
    """What an answer must look like.

    Attributes:
        grammar: of the whole text; "": any.
        answer: what an answer without calls is held against, if anything.
        calls: what the arguments of a call are held against, by the function's name.
        free: it may be any text, before the calls if there are any.
        unheld: the keywords that nothing holds, as "tools[0].function.parameters.properties.a.pattern".
    """

    grammar: str = ""
    answer: Check | None = None
    calls: Mapping[str, Check] = field(default_factory=dict)
    free: bool = True
    unheld: tuple[str, ...] = ()

    @property
    def is_checked(self) -> bool:
        """Whether a whole answer may turn out not to have this form."""
        return bool(self.answer or self.calls)

    def problem(self, text: str) -> str:
        """Why a whole answer does not have this form, a sentence; "": it has."""
        begins = f"{CALL_BEGINS}\n"  # in JSON no text has a line end
        at = text.find(begins) if self.calls else -1
        if at < 0:
            return self.answer.problem(text) if self.answer else ""
        while at >= 0:
            call, end = _DECODER.raw_decode(text, at + len(begins))
            check = self.calls.get(call["name"])
            if check and (wrong := check.problem(json.dumps(call["arguments"]))):
                return wrong
            at = text.find(begins, end)
        return ""


class FormMaker:
    """Collects a form: the rules of its grammar, what is to be checked, what nothing holds.

    Args:
        most_bytes: of a grammar. Beyond it schemas that are not strict say no more than that it is JSON.
        loose: so do all from the first: their grammar would be too large.
    """

    def __init__(self, most_bytes: int, *, loose: bool = False) -> None:
        self.grammar = Grammar()
        self.unheld: list[str] = []
        self._most_bytes = -1 if loose else most_bytes

    def schema(self, schema: Mapping[str, Any], field: str, *, strict: bool) -> tuple[str, Check | None]:
        """An expression of a schema, and what whole values are to be held against.

        Raises:
            InvalidArgument: it is strict, and what cannot be kept is named.
        """
        if self.grammar.size > self._most_bytes and not strict:
            self.unheld.append(field)
            return self.grammar.shared("object" if schema.get("type") == "object" else "value"), None
        rules = SchemaRules(self.grammar, schema, field, strict=strict)
        expression = rules.root()
        self.unheld += [f"{field}.{place}" for place in rules.unheld]
        if not rules.later:
            return expression, None
        if wrong := fault(schema):
            raise InvalidArgument(f"{field}: {wrong}")
        return expression, Check(field, schema)
