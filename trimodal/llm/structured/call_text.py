"""Writes functions and their calls as text: <tool_call>, a line of JSON, </tool_call>, as Hermes and Qwen do.

The engine's process imports it, perhaps in another environment: it needs nothing but Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

CALL_BEGINS = "<tool_call>"
CALL_ENDS = "</tool_call>"


def call_head(name: str) -> str:
    """What a call begins with; its arguments follow, a JSON object."""
    return f'{CALL_BEGINS}\n{{"name": {json.dumps(name)}, "arguments": '


CALL_TAIL = f"}}\n{CALL_ENDS}"


def as_plain_chat(
    messages: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The chat with functions and calls in its texts, for a template that has no place for them."""
    chat = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls", ())]
        parts = [message["content"], *(_call(one["name"], one["arguments"]) for one in calls)]
        chat.append({"role": message["role"], "content": "\n".join(part for part in parts if part)})
    if functions:
        instruction = _instruction(functions)
        if chat and chat[0]["role"] == "system":
            chat[0]["content"] = f"{chat[0]['content']}\n\n{instruction}"
        else:
            chat.insert(0, {"role": "system", "content": instruction})
    return chat


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{call_head(name)}{json.dumps(arguments, ensure_ascii=False)}{CALL_TAIL}"


def _instruction(functions: Sequence[Mapping[str, Any]]) -> str:
    listed = "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in functions)
    form = f'{CALL_BEGINS}\n{{"name": "…", "arguments": {{…}}}}\n{CALL_ENDS}'
    return f"You may call these functions:\n{listed}\nTo call one, answer only:\n{form}"
