"""Keeps the items of a talk: what was said, written and answered, in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from trimodal.gateway.answering import encoded
from trimodal.gateway.errors import invalid
from trimodal.gateway.openai.calls import chat_call
from trimodal.gateway.openai.conversation import DecodedMessage
from trimodal.gateway.openai.talk import MAX_TALK_BYTES, newest_turns
from trimodal.gateway.realtime.openai.items import Item, Picture, message_item
from trimodal.gateway.realtime.outbox import Outbox

MAX_ITEMS = 500
MAX_PICTURE_BYTES = 8 << 20


@dataclass(frozen=True)
class ConversationMessage(DecodedMessage):
    """One message of a talk, with the picture that its words are about; `spoken`: they were."""

    picture: Picture | None = None
    spoken: bool = False


class Conversation:
    """The items of one session. What a user said has no transcript until `heard`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._items: list[Item] = []
        self._pictures: dict[str, Picture] = {}  # by the id of their item, in the order in which they came
        self._sizes: dict[str, int] = {}
        self._pending: set[str] = set()
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def empty(self) -> bool:
        return not self._items

    @property
    def last_id(self) -> str | None:
        return self._items[-1]["id"] if self._items else None

    def create(self, item: Item, picture: Picture | None, previous: object = None) -> None:
        """Adds an item of the client's. Raises: ApiError."""
        if any(one["id"] == item["id"] for one in self._items):
            raise invalid(f"item.id: there is an item '{item['id']}' already")
        if item["type"] == "function_call_output" and not any(
            _calls(one, item["call_id"]) for one in self._items
        ):
            raise invalid(f"item.call_id: there is no call {item['call_id']!r:.80}")
        at = len(self._items)
        if previous == "root":
            at = 0
        elif previous is not None:
            at = self._index(previous, "previous_item_id") + 1
        if picture is not None:
            self._pictures[item["id"]] = picture
            self._bound_pictures()
        self._insert(at, item)
        self._tell_done(item)

    def add_speech(self, identity: str) -> None:
        """Adds what a user has said; its words come later."""
        self._pending.add(identity)
        self._settled.clear()
        content = [{"type": "input_audio", "transcript": None}]
        item = message_item(identity, "user", content, "completed")
        self._insert(len(self._items), item)
        self._tell_done(item)

    def heard(self, identity: str, transcript: str) -> None:
        """Sets the words of what a user has said."""
        for item in self._items:
            if item["id"] == identity:
                item["content"][0]["transcript"] = transcript
                self._sizes[identity] = _size(item)
        self._pending.discard(identity)
        if not self._pending:
            self._settled.set()

    async def settled(self) -> None:
        """Waits until all that was said has its words."""
        await self._settled.wait()

    def answer(self, item: Item, after: str | None) -> None:
        """Adds an item of an answer, which begins, after this one and before what was said since then."""
        places = [at for at, one in enumerate(self._items, 1) if one["id"] == after]
        self._insert(places[0] if places else len(self._items), item)

    def answered(self, item: Item, status: str) -> None:
        """Completes an item of an answer."""
        item["status"] = status
        if item["id"] in self._sizes:
            self._sizes[item["id"]] = _size(item)
        self._tell_done(item)

    def delete(self, identity: object) -> None:
        """Raises: ApiError where there is no such item."""
        item = self._drop(self._index(identity, "item_id"))
        self._outbox.put("conversation.item.deleted", item_id=item["id"])

    def retrieve(self, identity: object) -> None:
        """Raises: ApiError where there is no such item."""
        item = self._items[self._index(identity, "item_id")]
        self._outbox.put("conversation.item.retrieved", item=item)

    def messages(self, said: str = "") -> list[ConversationMessage]:
        """The talk in messages; an answer that was cut off stays as far as it came, but no part of a call.

        `said` is what a user says now, whose item is not there yet.

        Speech has an item of its own, which cannot hold a picture: so a picture without words goes with the
        user's words after it, else with those before it.
        """
        messages: list[ConversationMessage] = []
        talk = [self._message(item) for item in self._items if not _is_cut_call(item)]
        for one in reversed([*talk, ConversationMessage("user", said.strip(), spoken=True)]):
            after = messages[-1] if messages else None
            if not one.text and one.picture is None and not one.calls and one.role != "tool":
                continue
            if after is not None and after.calls and one.role == "assistant":
                text = "\n".join(filter(None, (one.text, after.text)))
                messages[-1] = replace(after, text=text, calls=(*one.calls, *after.calls))
            elif after is not None and _belong_together(one, after):
                text, picture = one.text or after.text, one.picture or after.picture
                spoken = one.spoken or after.spoken
                messages[-1] = ConversationMessage("user", text, picture=picture, spoken=spoken)
            else:
                messages.append(one)
        return messages[::-1]

    def _message(self, item: Item) -> ConversationMessage:
        if item["type"] == "function_call":
            call = chat_call(item["call_id"], item["name"], item["arguments"])
            return ConversationMessage("assistant", "", calls=(call,))
        if item["type"] == "function_call_output":
            return ConversationMessage("tool", item["output"], answers=item["call_id"])
        parts = (part.get("text") or part.get("transcript") or "" for part in item["content"])
        spoken = any(part.get("transcript") for part in item["content"])
        picture = self._pictures.get(item["id"])
        picture = picture if picture and picture.contents else None
        return ConversationMessage(item["role"], "\n".join(parts).strip(), picture=picture, spoken=spoken)

    def _index(self, identity: object, field: str) -> int:
        for index, item in enumerate(self._items):
            if item["id"] == identity:
                return index
        raise invalid(f"{field}: there is no item {identity!r:.80}", status=404, code="item_not_found")

    def _insert(self, at: int, item: Item) -> None:
        previous = self._items[at - 1]["id"] if at else None
        self._items.insert(at, item)
        self._outbox.put("conversation.item.added", previous_item_id=previous, item=item)
        self._sizes[item["id"]] = _size(item)
        sizes = [self._sizes[one["id"]] for one in self._items]
        roles = [one.get("role", "assistant") for one in self._items]
        newest = newest_turns(roles, sizes, MAX_ITEMS, MAX_TALK_BYTES)
        kept = set(newest)
        for old in [one for at, one in enumerate(self._items) if at not in kept]:
            self._drop(self._items.index(old))
            self._outbox.put("conversation.item.deleted", item_id=old["id"])

    def _drop(self, at: int) -> Item:
        item = self._items.pop(at)
        self._pictures.pop(item["id"], None)
        del self._sizes[item["id"]]
        return item

    def _bound_pictures(self) -> None:
        """Forgets the oldest pictures beyond the bound; their items stay."""
        size = 0
        for picture in reversed(self._pictures.values()):
            size += len(picture.contents)
            if size > MAX_PICTURE_BYTES:
                picture.forget()

    def _tell_done(self, item: Item) -> None:
        at = next((index for index, one in enumerate(self._items) if one is item), 0)
        previous = self._items[at - 1]["id"] if at else None
        self._outbox.put("conversation.item.done", previous_item_id=previous, item=item)


def _belong_together(one: ConversationMessage, after: ConversationMessage) -> bool:
    """Whether two messages are the words and the picture of one."""
    texts, pictures = bool(one.text) + bool(after.text), bool(one.picture) + bool(after.picture)
    return one.role == after.role == "user" and texts < 2 and pictures < 2


def _size(item: Item) -> int:
    """Bytes of its texts."""
    parts = [part.get("text") or part.get("transcript") for part in item.get("content", ())]
    return len(encoded([*parts, item.get("arguments", ""), item.get("output", "")]))


def _calls(item: Item, call_id: str) -> bool:
    return bool(item["type"] == "function_call" and item["call_id"] == call_id and not _is_cut_call(item))


def _is_cut_call(item: Item) -> bool:
    """Whether its arguments are no JSON: the models' servers take no such call."""
    return bool(item["type"] == "function_call" and item["status"] == "incomplete")
