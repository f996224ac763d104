"""Keeps one rule for the fields of a JSON body, those that this server does not have included.

null is "not given". A field that is not declared is ignored, counted and named in the header
`x-ignored-fields`. One that would change the answer and cannot be honoured is refused by name: each class of
bodies lists its own in `refused`. A number may be written as a text, and a whole one as 5.0.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trimodal.errors import InvalidArgument
from trimodal.gateway.errors import unsupported
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.reading import MAX_BYTES
from trimodal.llm.structured.tools import read_tools

IGNORED_HEADER = "x-ignored-fields"
_MOST_NAMED = 32
_MOST_GRAMMAR_BYTES: int = LlmSettings.model_fields["max_grammar_bytes"].default
_NAME = re.compile(r"[\w.\[\]-]{1,128}", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")


def _whole(value: Any) -> Any:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number)]


@dataclass(frozen=True)
class Refusal:
    """Why a field is refused; one of the values of `harmless` asks for nothing."""

    why: str
    harmless: tuple[Any, ...] = ()


class Body(BaseModel):
    """A JSON object. What it has beyond the declared fields is kept until `take_ignored`."""

    model_config = ConfigDict(extra="allow", strict=True)
    refused: ClassVar[Mapping[str, Refusal]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


class ModelBody(Body):
    """One that names a model."""

    model: Annotated[str, Field(min_length=1, max_length=256)]


def take_ignored(body: Body) -> tuple[str, ...]:
    """Takes what is ignored out of a body and the bodies in it, and names it: `messages[].cache_control`.

    Raises: ApiError 400 naming a field that cannot be honoured.
    """
    return tuple(sorted(set(_take(body, "", ""))))


def ignored_header(names: Iterable[str]) -> str:
    """The names for a header; what is no plain name, and more than 32, is only counted."""
    given = list(names)
    told = [name for name in given if _NAME.fullmatch(name)][:_MOST_NAMED]
    more = len(given) - len(told)
    return ", ".join([*told, f"and {more} more"] if more else told)


def _take(body: Body, kind: str, place: str) -> Iterator[str]:
    """`kind` and `place` lead to the body, as messages[]. and messages[0]. do."""
    extra = body.__pydantic_extra__ or {}
    for name, value in extra.items():
        refusal = body.refused.get(name)
        if refusal is None:
            yield kind + name
        elif value not in refusal.harmless:
            raise unsupported(place + name, refusal.why)
    extra.clear()
    for name in body.model_fields_set:
        value = getattr(body, name, None)
        if isinstance(value, Body):
            yield from _take(value, f"{kind}{name}.", f"{place}{name}.")
        elif isinstance(value, list):
            for index, one in enumerate(value):
                if isinstance(one, Body):
                    yield from _take(one, f"{kind}{name}[].", f"{place}{name}[{index}].")


async def unheld(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Where its schemas have keywords that no answer is held to; nothing of what the model will refuse.

    Read in a thread: many tools take a tenth of a second.

    Args:
        options: `response_format`, `tools` and `tool_choice` as the client sends them to the model.
    """
    form, tools, choice = (options.get(name) for name in ("response_format", "tools", "tool_choice"))
    return await asyncio.to_thread(_unheld, form, tools, choice) if form or tools else ()


def _unheld(form: Any, tools: Any, choice: Any) -> tuple[str, ...]:
    form, tools = _text(form), _text(tools)
    if max(len(form or ""), len(tools or "")) > MAX_BYTES:
        return ()
    try:
        functions = read_tools(tools, choice if isinstance(choice, str) else _text(choice), None)
        return read_form(form, functions, _MOST_GRAMMAR_BYTES).unheld
    except InvalidArgument:
        return ()


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
