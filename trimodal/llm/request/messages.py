"""Reads a chat: a JSON list of messages, with the calls of functions in it and what they returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.reading import read_json
from trimodal.llm.structured.tools import NAME
from trimodal.llm.tokenizer import Message
from trimodal.triton.fields import shown

ROLES = ("system", "user", "assistant", "tool")
_MAX_MESSAGES = 1024
_KNOWN = {role: {"role", "content"} for role in ROLES}
_KNOWN["assistant"] = _KNOWN["assistant"] | {"tool_calls"}
_KNOWN["tool"] = _KNOWN["tool"] | {"tool_call_id", "name"}


def read_messages(chat_text: str | None) -> tuple[Message, ...] | None:
    """The chat in `chat_text`; None: there is none.

    Raises:
        InvalidArgument: names the message and the key that is wrong.
    """
    if chat_text is None:
        return None
    chat = read_json("messages", chat_text)
    if not isinstance(chat, Sequence) or isinstance(chat, str) or not chat:
        raise InvalidArgument('messages must be a non-empty JSON list of {"role", "content"} objects')
    if len(chat) > _MAX_MESSAGES:
        raise InvalidArgument(f"messages holds {len(chat)} entries: at most {_MAX_MESSAGES} are taken")
    return tuple(_message(f"messages[{index}]", entry) for index, entry in enumerate(chat))


def _message(name: str, entry: Any) -> Message:
    if not isinstance(entry, dict):
        raise InvalidArgument(f"{name} must be an object with role and content")
    role, content = entry.get("role"), entry.get("content")
    known = _KNOWN.get(role, _KNOWN["user"]) if isinstance(role, str) else _KNOWN["user"]
    if unknown := set(entry) - known:
        listed = ", ".join(sorted(known, reverse=True))
        raise InvalidArgument(f"{name} has an unknown key {shown(min(unknown))}: {listed} are known")
    if role not in ROLES:
        raise InvalidArgument(f"{name}.role is {shown(role)}: one of {', '.join(ROLES)} is needed")
    calls = entry.get("tool_calls")
    if content is None and calls:
        content = ""
    message = {"role": role, "content": _text(f"{name}.content", content)}
    for key in ("tool_call_id", "name"):
        if entry.get(key) is not None:
            message[key] = _text(f"{name}.{key}", entry[key])
    if calls is not None:
        message["tool_calls"] = _calls(f"{name}.tool_calls", calls)
    return message


def _calls(name: str, calls: Any) -> list[Mapping[str, Any]]:
    """Calls as chat templates take them: with arguments as an object."""
    if not isinstance(calls, list) or not calls:
        raise InvalidArgument(f"{name} must be a list of calls that is not empty")
    read: list[Mapping[str, Any]] = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise InvalidArgument(f'{name}[{index}] must be {{"function": {{"name": …, "arguments": …}}}}')
        called, arguments = function.get("name"), function.get("arguments")
        if not isinstance(called, str) or not NAME.fullmatch(called):
            raise InvalidArgument(f"{name}[{index}].function.name is {shown(called)}: no function's name")
        at = f"{name}[{index}].function.arguments"
        values = read_json(at, _text(at, arguments))
        if not isinstance(values, dict):
            raise InvalidArgument(f"{at} must be the text of a JSON object")
        id = _text(f"{name}[{index}].id", call.get("id", ""))
        read.append({"id": id, "type": "function", "function": {"name": called, "arguments": values}})
    return read


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a string")
    return value
