"""Keeps responses, and the talk up to each, so that a later request may go on from there.

In memory, or where the cache of answers has its stores: a file, or a Redis that several gateways share.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from trimodal.cache.stores.base import Limits, Store, StoreError, open_store
from trimodal.cache.values import CacheScope, Entry, Vector
from trimodal.client.values import Prediction
from trimodal.errors import OperatorError, SettingsError
from trimodal.gateway.answering import encoded
from trimodal.gateway.errors import ApiError, invalid
from trimodal.gateway.openai.conversation import DecodedMessage
from trimodal.gateway.openai.talk import MAX_TALK_BYTES, newest_turns

logger = logging.getLogger(__name__)

MAX_RESPONSES, MAX_BYTES, KEPT_S = 10_000, 64 << 20, 30 * 86_400.0
MAX_RESPONSE_BYTES = 1 << 20
MAX_MESSAGES = 1_000  # of a talk
_TIMEOUT_S = 2.0
_ID = re.compile(r"resp_[0-9a-f]{32}")
_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})_[0-9]+")


@dataclass(frozen=True)
class KeptResponse:
    """A response's body, the messages up to its end without their files, and how many older ones are gone."""

    body: dict[str, Any]
    messages: list[DecodedMessage]
    left_out: int = 0

    def talk(self, new: Sequence[DecodedMessage]) -> tuple[list[DecodedMessage], int]:
        """The messages that it goes on from, then these, and how many older ones are gone.

        Of a talk that is too long its oldest turns are: no client can shorten it.
        """
        messages = [*self.messages, *new]
        roles, sizes = [one.role for one in messages], [len(encoded(_bare(one))) for one in messages]
        newest = newest_turns(roles, sizes, MAX_MESSAGES, MAX_TALK_BYTES)
        return [messages[at] for at in newest], self.left_out + len(messages) - len(newest)


class MemoryAnswers:
    """Keeps entries in memory, in place of a store of the cache.

    Where there is no room, the tenant who takes the most loses the one that was not asked for the longest:
    nobody pushes out what others keep.
    """

    def __init__(self, most: int = MAX_RESPONSES, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._entries: dict[str, OrderedDict[str, Entry]] = {}  # of each tenant
        self._bytes: Counter[str] = Counter()

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        own = self._entries.get(scope.tenant, OrderedDict())
        entry = own.get(key)
        if entry is None or entry.expires_at <= self._clock():
            return None
        own.move_to_end(key)
        return entry

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        self._drop(scope.tenant, key)
        if entry.expires_at <= self._clock():
            return
        self._entries.setdefault(scope.tenant, OrderedDict())[key] = entry
        self._bytes[scope.tenant] += len(entry.answer.encode())
        while self._bytes.total() > MAX_BYTES:
            self._drop(max(self._bytes, key=self._bytes.__getitem__))
        while self.count() > self._most:
            self._drop(max(self._entries, key=lambda tenant: len(self._entries[tenant])))

    def count(self) -> int:
        return sum(map(len, self._entries.values()))

    def close(self) -> None:
        self._entries.clear()

    def _drop(self, tenant: str, key: str = "") -> None:
        """Takes an entry away, if it is there; by default the tenant's oldest."""
        own = self._entries.get(tenant, OrderedDict())
        gone = own.pop(key or next(iter(own), ""), None)
        if gone:
            self._bytes[tenant] -= len(gone.answer.encode())
        if not own:
            self._entries.pop(tenant, None)
            del self._bytes[tenant]


class ResponseStore:
    """Responses by id, each only for its tenant.

    `count`: how many the store had when this gateway last kept or deleted one; None: it has not yet.

    Args:
        place: "memory", a file's path, or redis://….
        most: so many are kept.

    Raises: SettingsError: there can be no store at this place.
    """

    def __init__(self, place: str, most: int = MAX_RESPONSES) -> None:
        self.count: int | None = None
        self._in_memory = place == "memory"
        try:
            self._answers: MemoryAnswers | Store = (
                MemoryAnswers(most) if self._in_memory else open_store(place, Limits(most, _TIMEOUT_S))
            )
        except OperatorError as error:
            raise SettingsError(str(error).replace("cache_store", "responses")) from None

    async def get(self, tenant: str, id: str, field: str = "response_id") -> KeptResponse:
        """Raises: ApiError 404: there is none of this tenant; 503: the store does not answer."""
        kept = await self._find(tenant, id) if _ID.fullmatch(id) else None
        if kept is None:
            code = "previous_response_not_found" if field == "previous_response_id" else "response_not_found"
            why = f"{field}: there is no response {id!r:.80}, or it is not kept any more"
            raise ApiError(404, why, param=field, code=code)
        return kept

    async def items(self, tenant: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Those of these items of answers that are kept, by their ids.

        Raises: ApiError 400: they are larger than a response may be, each as often as it is named; 503: the
            store does not answer.
        """
        found: dict[str, dict[str, Any]] = {}
        times, size = Counter(ids), 0
        matches = map(_ITEM_ID.fullmatch, ids)
        for response in dict.fromkeys(f"resp_{match[1]}" for match in matches if match):
            await asyncio.sleep(0)  # others have their turn: to read a megabyte takes 10 ms
            kept = await self._find(tenant, response)
            for item in kept.body["output"] if kept else ():
                if item["id"] in times:
                    found[item["id"]] = item
                    size += times[item["id"]] * len(encoded(item))
            if size > MAX_RESPONSE_BYTES:
                raise invalid(f"input: the items that it names have more than {MAX_RESPONSE_BYTES} bytes")
        return found

    async def put(self, tenant: str, kept: KeptResponse) -> bool:
        """Keeps a response; False: it is too large, or the store does not answer."""
        messages = [_bare(one) for one in kept.messages]
        text = encoded({"body": kept.body, "messages": messages, "left_out": kept.left_out})
        if len(text) > MAX_RESPONSE_BYTES:
            return False
        try:
            await self._call(self._change, tenant, kept.body["id"], _entry(text.decode(), KEPT_S))
        except ApiError:
            return False
        return True

    async def delete(self, tenant: str, id: str) -> None:
        """Raises: ApiError as `get` does."""
        await self.get(tenant, id)
        await self._call(self._change, tenant, id, _entry("", 0.0))

    def close(self) -> None:
        self._answers.close()

    def _change(self, scope: CacheScope, key: str, entry: Entry) -> None:
        self._answers.put(scope, key, entry, None)
        with suppress(StoreError):  # what was kept is kept
            self.count = self._answers.count()

    async def _find(self, tenant: str, id: str) -> KeptResponse | None:
        entry = await self._call(self._answers.get, tenant, id)
        return _read(entry.answer) if entry else None

    async def _call(self, call: Callable[..., Any], tenant: str, id: str, *more: object) -> Any:
        scope = CacheScope("responses", tenant, "responses", "")
        try:
            if self._in_memory:
                return call(scope, id, *more)
            return await asyncio.to_thread(call, scope, id, *more)
        except StoreError as error:
            logger.warning("the store of responses does not answer: %s", error)
            told = "the store of responses does not answer"
            raise ApiError(503, told, code="store_unavailable", retry_after_s=1.0) from None


def _read(text: str) -> KeptResponse | None:
    """A response that was kept; None: another version kept it, in another form."""
    try:
        kept = json.loads(text)
        messages = [
            DecodedMessage(**{**one, "labels": tuple(Prediction(**label) for label in one["labels"])})
            for one in kept["messages"]
        ]
        return KeptResponse(kept["body"], messages, kept["left_out"])
    except (ValueError, KeyError, TypeError):
        return None


def _bare(message: DecodedMessage) -> dict[str, Any]:
    """As JSON, without its files and their place in a request."""
    fields = ("role", "text", "calls", "answers", "heard")
    labels = [asdict(one) for one in message.labels]
    return {**{name: getattr(message, name) for name in fields}, "labels": labels}


def _entry(text: str, kept_s: float) -> Entry:
    now = time.time()
    return Entry("", text, "stop", 0, 0, now, now + kept_s)
