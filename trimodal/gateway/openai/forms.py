"""Tells which keywords of a request's schemas no answer is held to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.reading import MAX_BYTES
from trimodal.llm.structured.tools import read_tools

_MOST_BYTES: int = LlmSettings.model_fields["max_grammar_bytes"].default


async def unheld(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Their places, for the header of what is ignored; none of what the model will refuse.

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
        return read_form(form, functions, _MOST_BYTES).unheld
    except InvalidArgument:
        return ()


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
