"""Keeps the items of a talk: what was said, written and answered, in order."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from trimodal.client.values import Message
from trimodal.gateway.errors import ApiError, unsupported
from trimodal.gateway.realtime.outbox import Outbox

# The oldest are forgotten, as OpenAI's truncation "auto" does; the model server trims to its own budget.
MAX_ITEMS, MAX_CHARACTERS = 500, 1 << 18
MAX_ITEM_CHARACTERS = 1 << 16  # an item is told twice, and what is not read yet is bounded too
_PARTS = {"user": "input_text", "system": "input_text", "assistant": "output_text"}

Item = dict[str, Any]


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


class Conversation:
    """The items of one session. What a user said has no transcript until `heard`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._items: list[Item] = []
        self._pending: set[str] = set()
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def empty(self) -> bool:
        return not self._items

    @property
    def last_id(self) -> str | None:
        return self._items[-1]["id"] if self._items else None

    def create(self, given: object, previous: object = None) -> None:
        """Adds an item of the client's. Raises: ApiError."""
        item = _read_item(given)
        if any(one["id"] == item["id"] for one in self._items):
            raise ApiError(400, f"item.id: there is an item '{item['id']}' already", param="item.id")
        at = len(self._items)
        if previous == "root":
            at = 0
        elif previous is not None:
            at = self._index(previous, "previous_item_id") + 1
        self._insert(at, item)
        self._tell_done(item)

    def say(self, identity: str) -> None:
        """Adds what a user has said; its words come later."""
        self._pending.add(identity)
        self._settled.clear()
        content = [{"type": "input_audio", "transcript": None}]
        item = _message(identity, "user", content, "completed")
        self._insert(len(self._items), item)
        self._tell_done(item)

    def heard(self, identity: str, transcript: str) -> None:
        """Sets the words of what a user has said."""
        for item in self._items:
            if item["id"] == identity:
                item["content"][0]["transcript"] = transcript
        self._pending.discard(identity)
        if not self._pending:
            self._settled.set()

    async def settled(self) -> None:
        """Waits until all that was said has its words."""
        await self._settled.wait()

    def answer(self) -> Item:
        """Adds an answer that begins."""
        item = _message(new_id("item"), "assistant", [], "in_progress")
        self._insert(len(self._items), item)
        return item

    def answered(self, item: Item, text: str, status: str) -> None:
        """Completes an answer."""
        item["content"] = [{"type": "output_text", "text": text}]
        item["status"] = status
        self._tell_done(item)

    def delete(self, identity: object) -> None:
        """Raises: ApiError where there is no such item."""
        item = self._items.pop(self._index(identity, "item_id"))
        self._outbox.put("conversation.item.deleted", item_id=item["id"])

    def retrieve(self, identity: object) -> None:
        """Raises: ApiError where there is no such item."""
        item = self._items[self._index(identity, "item_id")]
        self._outbox.put("conversation.item.retrieved", item=item)

    def messages(self, instructions: str) -> list[Message]:
        """The talk for the model; an answer that was cut off stays as far as it came."""
        told: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
        for item in self._items:
            parts = (part.get("text") or part.get("transcript") or "" for part in item["content"])
            if text := "\n".join(parts).strip():
                told.append({"role": item["role"], "content": text})
        return told

    def _index(self, identity: object, field: str) -> int:
        for index, item in enumerate(self._items):
            if item["id"] == identity:
                return index
        raise ApiError(404, f"{field}: there is no item {identity!r:.80}", param=field, code="item_not_found")

    def _insert(self, at: int, item: Item) -> None:
        previous = self._items[at - 1]["id"] if at else None
        self._items.insert(at, item)
        while len(self._items) > 1 and (len(self._items) > MAX_ITEMS or self._size() > MAX_CHARACTERS):
            self._items.pop(0)
        self._outbox.put("conversation.item.added", previous_item_id=previous, item=item)

    def _size(self) -> int:
        return sum(
            len(part.get("text") or part.get("transcript") or "")
            for item in self._items
            for part in item["content"]
        )

    def _tell_done(self, item: Item) -> None:
        at = next((index for index, one in enumerate(self._items) if one is item), 0)
        previous = self._items[at - 1]["id"] if at else None
        self._outbox.put("conversation.item.done", previous_item_id=previous, item=item)


def _message(identity: str, role: str, content: list[dict[str, Any]], status: str) -> Item:
    item = {"id": identity, "object": "realtime.item", "type": "message"}
    return {**item, "status": status, "role": role, "content": content}


def _read_item(given: object) -> Item:
    """Checks an item that a client adds: a message of texts. Raises: ApiError."""
    if not isinstance(given, dict):
        raise ApiError(400, "item: an object is needed", param="item")
    if given.get("type") != "message":
        raise unsupported("item.type", f"is {given.get('type')!r:.64}: 'message' is supported")
    role, parts = given.get("role"), given.get("content")
    if not isinstance(role, str) or role not in _PARTS:
        raise ApiError(400, "item.role: user, system or assistant is needed", param="item.role")
    identity = given.get("id") or new_id("item")
    if not isinstance(identity, str) or len(identity) > 64:
        raise ApiError(400, "item.id: a text of at most 64 characters is needed", param="item.id")
    if not isinstance(parts, list) or not parts:
        raise ApiError(400, "item.content: a list of parts is needed", param="item.content")
    content = []
    for index, part in enumerate(parts):
        place = f"item.content[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != _PARTS[role]:
            why = f"is {kind!r:.64}: '{_PARTS[role]}' is supported for the role {role}"
            raise unsupported(f"{place}.type", why)
        if not isinstance(part.get("text"), str):
            raise ApiError(400, f"{place}.text: a text is needed", param=f"{place}.text")
        content.append({"type": kind, "text": part["text"]})
    if (size := sum(len(part["text"]) for part in content)) > MAX_ITEM_CHARACTERS:
        why = f"has {size} characters: at most {MAX_ITEM_CHARACTERS} are taken"
        raise ApiError(400, f"item.content {why}", param="item.content")
    return _message(identity, role, content, "completed")
