"""Stores answers in a Qdrant that several servers share and that also does the vector search.

Reads time out after the cache's budget; writes run in the background with 2 s. Neither is retried.
Collections are made with the first answer. A poisoned point is a miss and dropped.
Writers that make room at the same time may remove a few answers more than `max_entries` asks for.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from qdrant_client import models

from trimodal.cache.stores import qdrant_schema as schema
from trimodal.cache.stores.base import Limits, Owner, Recency, StoreError
from trimodal.cache.stores.codec import checked_vector, pack, scope_name, unpack
from trimodal.cache.stores.qdrant_schema import decoded, field, missing, owner_of, point_id, told, unexpired
from trimodal.cache.values import CacheScope, Entry, StoreStats, Vector

WRITE_WAIT_S = 2.0
STEP = 100  # answers that one put removes at most, beside the expired ones
SWEEP_S = 60.0  # between removals of what has expired
PAGE = 1_000
SPARE = 8  # vectors asked for beyond the count: some may have outlived their answers


def open_store(url: str, limits: Limits) -> QdrantStore:
    """Opens the store at `qdrant+http[s]://[api_key@]host[:port][/collection]`. Raises OperatorError."""
    (reader, writer), name = schema.connect(url, (limits.timeout_s, max(limits.timeout_s, WRITE_WAIT_S)))
    return QdrantStore(reader, writer, name, limits)


class QdrantStore:
    """See `Store`."""

    def __init__(
        self, reader: Any, writer: Any, name: str, limits: Limits, clock: Callable[[], float] = time.time
    ) -> None:
        self._reader, self._writer, self._name = reader, writer, name
        self._limits = limits
        self._clock = clock
        self._uses = Recency()
        self._swept_at = 0.0

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        name = scope_name(scope)
        with told():
            found = self._fetch(name, [key])
        if key in found:
            self._uses.note(name, key, self._clock())
        return found.get(key)

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        vector, name, now = checked_vector(vector), scope_name(scope), self._clock()
        points: Sequence[Any] = ()
        found: Mapping[str, Entry] = {}
        with told():
            with missing():
                points = self._reader.query_points(
                    self._vectors(len(vector)),
                    query=vector.tolist(),
                    query_filter=unexpired(now, name),
                    limit=count + SPARE,
                    with_payload=["key"],
                ).points
            ranked = [(point.score, key) for point in points if isinstance(key := field(point, "key"), str)]
            if ranked:
                found = self._fetch(name, [key for _, key in ranked], searched=True)
        best = [(min(1.0, max(-1.0, score)), key) for score, key in ranked if key in found][:count]
        for _, key in best:
            self._uses.note(name, key, now)
        return [(score, found[key]) for score, key in best]

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        name, now = scope_name(scope), self._clock()
        values = None if vector is None else checked_vector(vector).tolist()
        packed = pack(name, key, entry)
        number, owner = point_id(name, key), {**owner_of(scope), "expires_at": entry.expires_at}
        answer = {
            **owner,
            "used_at": now,
            "searched": values is not None,
            "size": len(packed),
            "packed": base64.b64encode(packed).decode(),
        }
        with told():
            self._upsert(self._name, 0, models.PointStruct(id=number, vector={}, payload=answer))
            if values is not None:
                where = {**owner, "place": name, "key": key}
                point = models.PointStruct(id=number, vector=values, payload=where)
                self._upsert(self._vectors(len(values)), len(values), point)
            self._write_uses()
            self._make_room(now)

    def clear(self, owner: Owner) -> int:
        chosen = schema.owned_by(owner)
        with told():
            collections = self._collections()
            if self._name not in collections:
                return 0
            total = int(self._writer.count(self._name, count_filter=chosen, exact=True).count)
            self._delete(collections, models.FilterSelector(filter=chosen))
            return total

    def count(self) -> int:
        with told(), missing():
            return int(self._reader.count(self._name, exact=False).count)
        return 0

    def stats(self) -> StoreStats:
        """Pages through all answers: for the command, not for a gauge."""
        entries, size, offset = 0, 0, None
        tenants: set[str] = set()
        with told():
            if self._name not in self._collections():
                return StoreStats(0, 0, 0)
            while True:
                points, offset = self._writer.scroll(
                    self._name,
                    scroll_filter=unexpired(self._clock()),
                    limit=PAGE,
                    offset=offset,
                    with_payload=["size", "tenant"],
                )
                entries += len(points)
                size += sum(value for point in points if isinstance(value := field(point, "size"), int))
                tenants.update(str(field(point, "tenant")) for point in points)
                if offset is None:
                    return StoreStats(entries, size, len(tenants))

    def close(self) -> None:
        with suppress(StoreError), told():
            self._write_uses()
        self._reader.close()
        self._writer.close()

    def _fetch(self, name: str, keys: Sequence[str], searched: bool = False) -> Mapping[str, Entry]:
        """Unexpired answers by key; `searched`: only those that have a vector. Drops what is no answer."""
        numbers = {point_id(name, key): key for key in keys}
        points: Sequence[Any] = ()
        with missing():
            fields = ["packed", "searched"]
            points = self._reader.retrieve(self._name, list(numbers), with_payload=fields)
        now, found, poisoned = self._clock(), {}, []
        for point in points:
            key = numbers.get(str(point.id), "")
            entry = unpack(name, key, decoded(field(point, "packed")))
            if entry is None:
                poisoned.append(point.id)
            elif entry.expires_at > now and not (searched and field(point, "searched") is not True):
                found[key] = entry
        if poisoned:
            # Not waited for: this is a reader's time.
            self._reader.delete(self._name, models.PointIdsList(points=poisoned), wait=False)
        return found

    def _upsert(self, collection: str, dimension: int, point: Any) -> None:
        with missing():
            self._writer.upsert(collection, [point])
            return
        schema.create(self._writer, collection, dimension)
        self._writer.upsert(collection, [point])

    def _make_room(self, now: float) -> None:
        over = self._writer.count(self._name, exact=True).count - self._limits.max_entries
        if over <= 0 and now < self._swept_at + SWEEP_S:
            return
        self._swept_at = now
        collections = self._collections()
        self._delete(collections, models.FilterSelector(filter=schema.expired(now)))
        over = self._writer.count(self._name, exact=True).count - self._limits.max_entries
        if over > 0:
            oldest, _ = self._writer.scroll(
                self._name, limit=min(over, STEP), order_by="used_at", with_payload=False
            )
            self._delete(collections, models.PointIdsList(points=[point.id for point in oldest]))

    def _delete(self, collections: Sequence[str], selector: Any) -> None:
        for collection in collections:
            self._writer.delete(collection, selector)

    def _collections(self) -> Sequence[str]:
        """Ours that exist, the answers first: vectors without answers do no harm."""
        names = [one.name for one in self._writer.get_collections().collections]
        return sorted(name for name in names if re.fullmatch(rf"{self._name}(_vectors_\d+)?", name))

    def _vectors(self, dimension: int) -> str:
        return f"{self._name}_vectors_{dimension}"

    def _write_uses(self) -> None:
        uses = self._uses.take()
        if uses:
            # One time for all that were used since the last put: fine enough for what goes first.
            points = [point_id(name, key) for name, key, _ in uses]
            last = max(used_at for _, _, used_at in uses)
            # By a filter: a list of points would fail where one has gone meanwhile.
            still = models.Filter(must=[models.HasIdCondition(has_id=points)])
            self._writer.set_payload(self._name, {"used_at": last}, still)
