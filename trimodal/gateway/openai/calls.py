"""Turns the text of an answer that may call functions into OpenAI's tool_calls, as it comes or whole.

The model's grammar sees to the form: <tool_call>, a line with {"name": …, "arguments": …}, </tool_call>.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from trimodal.client.options import Options
from trimodal.errors import InvalidArgument
from trimodal.gateway.errors import as_api_error, invalid
from trimodal.llm.detokenizer import overlap
from trimodal.llm.structured.call_text import CALL_BEGINS, CALL_ENDS
from trimodal.llm.structured.reading import read_json

_HEAD = re.compile(r'\s*\{"name": "([a-zA-Z0-9_-]+)", "arguments":\s*(?=\{)')
_MOST_HEAD = 512  # characters without a call's head: it is text
Part = dict[str, Any]


class CallReader:
    """Reads one answer; not `calling`: all of it is text. `calls`: how many have begun."""

    def __init__(self, *, calling: bool = True) -> None:
        self.calls = 0
        self._calling = calling
        self._held = ""
        self._place = "text"  # then head, arguments, tail, and text again
        self._depth = 0
        self._quoted = self._escaped = False

    @property
    def within(self) -> bool:
        """Whether the arguments of a call are not whole yet."""
        return self._place == "arguments"

    @property
    def called(self) -> bool:
        """Whether there are calls, all of them whole: a text of `stop` may have cut the last one."""
        return self.calls > 0 and not self.within

    def read(self, text: str, *, last: bool = False) -> list[Part]:
        """Deltas of a message: its content, and calls of functions."""
        if not self._calling:
            return _text_part(text)
        self._held += text
        parts: list[Part] = []
        while True:
            before = self._place, self._held
            parts += getattr(self, f"_read_{self._place}")(last)
            if (self._place, self._held) == before:
                return parts

    def _read_text(self, last: bool) -> list[Part]:
        if self.calls:  # only another call may follow, on a new line
            self._held = self._held.lstrip()
        at = self._held.find(CALL_BEGINS)
        if at >= 0:
            text, self._held = self._held[:at], self._held[at + len(CALL_BEGINS) :]
            self._place = "head"
            return _text_part(text)
        keep = 0 if last else overlap(self._held, CALL_BEGINS)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return _text_part(text)

    def _read_head(self, last: bool) -> list[Part]:
        match = _HEAD.match(self._held)
        if not match:
            if not last and len(self._held) <= _MOST_HEAD and CALL_BEGINS not in self._held:
                return []
            self._place = "text"
            return _text_part(CALL_BEGINS)
        self._held = self._held[match.end() :]
        self._place = "arguments"
        call = chat_call(f"call_{secrets.token_hex(12)}", match[1], "")
        self.calls += 1
        return [{"tool_calls": [{"index": self.calls - 1, **call}]}]

    def _read_arguments(self, last: bool) -> list[Part]:
        end = len(self._held)
        for at, character in enumerate(self._held):
            self._follow(character)
            if not self._depth:
                end, self._place = at + 1, "tail"
                break
        text, self._held = self._held[:end], self._held[end:]
        if not text:
            return []
        return [{"tool_calls": [{"index": self.calls - 1, "function": {"arguments": text}}]}]

    def _read_tail(self, last: bool) -> list[Part]:
        at = self._held.find(CALL_ENDS)
        if at >= 0:
            self._held = self._held[at + len(CALL_ENDS) :]
            self._place = "text"
        return []

    def _follow(self, character: str) -> None:
        """Counts the braces that are open, outside of strings."""
        if self._escaped:
            self._escaped = False
        elif self._quoted:
            self._quoted, self._escaped = character != '"', character == "\\"
        elif character == '"':
            self._quoted = True
        elif character in "{}":
            self._depth += 1 if character == "{" else -1


def chat_call(id: str, name: str, arguments: str) -> Part:
    """A call as a chat has it."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def check_arguments(arguments: str, field: str) -> None:
    """Raises: ApiError naming the field where the arguments of a call are no JSON object."""
    try:
        given = read_json(field, arguments)
    except InvalidArgument as error:
        raise as_api_error(error) from None
    if not isinstance(given, dict):
        raise invalid(f"{field} must be the text of a JSON object")


def read_calls(reader: CallReader, text: str) -> Part:
    """The message of a whole answer: content (None where there are only calls) and tool_calls, if any."""
    content, calls = "", []
    for part in reader.read(text, last=True):
        content += part.get("content", "")
        for call in part.get("tool_calls", ()):
            if "id" in call:
                calls.append({key: call[key] for key in ("id", "type", "function")})
            else:
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    return {"content": content or None, "tool_calls": calls} if calls else {"content": content}


def tool_options(tools: Sequence[BaseModel], choice: Any, *, parallel: bool) -> Options:
    """The options of functions whose fields stand flat, as in OpenAI's Responses and Realtime APIs."""
    functions = [tool.model_dump(exclude={"type"}, exclude_none=True) for tool in tools]
    name = getattr(choice, "name", None)
    return Options(
        tools=[{"type": "function", "function": function} for function in functions],
        tool_choice={"type": "function", "function": {"name": name}} if name else choice,
        parallel_tool_calls=parallel,
    )


def _text_part(text: str) -> list[Part]:
    """The delta of a text; none where it is empty."""
    return [{"content": text}] if text else []
