"""Reads the items that a client adds to a talk: messages, a user's also with a picture, calls and outputs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimodal.client.values import Prediction
from trimodal.gateway.errors import invalid, unsupported
from trimodal.gateway.media import decode_data_url
from trimodal.gateway.openai.calls import check_arguments
from trimodal.llm.structured.tools import NAME

MAX_ITEM_CHARACTERS = 1 << 16  # an item is sent twice, and what is not read yet is bounded too
_TEXTS = {"user": "input_text", "system": "input_text", "assistant": "output_text"}
_IMAGE = "input_image"
_CALLS = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
}
_LONG = ("arguments", "output")
_DETAILS = (None, "auto", "low", "high")

Item = dict[str, Any]


@dataclass(eq=False)
class Picture:
    """The picture of one item: its file, empty when forgotten, and its labels, once somebody has looked."""

    item_id: str
    contents: bytes
    labels: tuple[Prediction, ...] = ()

    def forget(self) -> None:
        """Drops file and labels; the item stays."""
        self.contents, self.labels = b"", ()


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def message_item(identity: str, role: str, content: list[dict[str, Any]], status: str) -> Item:
    """An item as events have it."""
    item = {"id": identity, "object": "realtime.item", "type": "message"}
    return {**item, "status": status, "role": role, "content": content}


def call_item(identity: str, kind: str, status: str = "completed", **fields: str) -> Item:
    """A call of a function, or its output, as events have it."""
    return {"id": identity, "object": "realtime.item", "type": kind, "status": status, **fields}


def read_item(given: object) -> tuple[Item, Picture | None]:
    """Checks an item that a client adds. Raises: ApiError naming the part.

    Events have a picture without its file: they would hold it twice.
    """
    if not isinstance(given, dict):
        raise invalid("item: an object is needed")
    kind = given.get("type")
    if isinstance(kind, str) and kind in _CALLS:
        fields = {name: _field(given, name) for name in _CALLS[kind]}
        return call_item(_identity(given), kind, _status(kind, given, fields), **fields), None
    if kind != "message":
        raise unsupported("item.type", f"is {kind!r:.64}: 'message' and {', '.join(_CALLS)} are supported")
    role, parts = given.get("role"), given.get("content")
    if not isinstance(role, str) or role not in _TEXTS:
        raise invalid("item.role: user, system or assistant is needed")
    identity = _identity(given)
    if not isinstance(parts, list) or not parts:
        raise invalid("item.content: a list of parts is needed")
    content: list[dict[str, Any]] = []
    picture: Picture | None = None
    for index, part in enumerate(parts):
        place = f"item.content[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == _IMAGE and role == "user":
            if picture is not None:
                raise invalid(f"{place}: one picture an item is taken")
            picture = Picture(identity, _read_file(part, place))
            content.append({"type": kind})
        elif kind == _TEXTS[role]:
            content.append({"type": kind, "text": _text(part, "text", place)})
        else:
            known = f"'{_TEXTS[role]}'" + (f" or '{_IMAGE}'" if role == "user" else "")
            raise unsupported(f"{place}.type", f"is {kind!r:.64}: {known} is supported for the role {role}")
    if (size := sum(len(part.get("text", "")) for part in content)) > MAX_ITEM_CHARACTERS:
        why = f"has {size} characters: at most {MAX_ITEM_CHARACTERS} are taken"
        raise invalid(f"item.content {why}")
    return message_item(identity, role, content, "completed"), picture


def _identity(given: Mapping[str, Any]) -> str:
    identity = given.get("id") or new_id("item")
    if not isinstance(identity, str) or len(identity) > 64:
        raise invalid("item.id: a text of at most 64 characters is needed")
    return identity


def _status(kind: str, given: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    """Reads that of a call or an output. Raises: ApiError where it is a whole call that no model takes."""
    if kind != "function_call":
        return "completed"
    if given.get("status") == "incomplete":
        return "incomplete"
    if not NAME.fullmatch(fields["name"]):
        raise invalid(f"item.name is {fields['name']!r}: no function's name ({NAME.pattern})")
    check_arguments(fields["arguments"], "item.arguments")
    return "completed"


def _field(given: Mapping[str, Any], name: str) -> str:
    """A text of a call or an output. Raises: ApiError."""
    value, most = _text(given, name, "item"), MAX_ITEM_CHARACTERS if name in _LONG else 64
    if len(value) > most or not (value or name in _LONG):
        raise invalid(f"item.{name} has {len(value)} characters: 1 to {most} are taken")
    return value


def _read_file(part: Mapping[str, Any], place: str) -> bytes:
    if part.get("detail") not in _DETAILS:
        raise invalid(f"{place}.detail: auto, low or high is needed")
    field = f"{place}.image_url"
    contents = decode_data_url(_text(part, "image_url", place), field)
    if not contents:
        raise invalid(f"{field} holds no picture")
    return contents


def _text(part: Mapping[str, Any], name: str, place: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise invalid(f"{place}.{name}: a text is needed")
    return value
