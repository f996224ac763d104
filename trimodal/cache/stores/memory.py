"""Stores answers in this process's memory: for tests, and where nothing may touch a disk."""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trimodal.cache.stores.base import Limits, Owner
from trimodal.cache.stores.codec import checked_vector, scope_name
from trimodal.cache.stores.vector_index import VectorIndexes
from trimodal.cache.values import CacheScope, Entry, StoreStats, Vector
from trimodal.errors import OperatorError


def open_store(url: str, limits: Limits) -> MemoryStore:
    """Raises OperatorError unless `url` is `memory:`."""
    if url.rstrip("/") != "memory:":
        raise OperatorError(f"cache_store '{url}': this store has no address, only 'memory:'")
    return MemoryStore(limits)


@dataclass(frozen=True)
class _Row:
    scope: CacheScope
    entry: Entry
    dimension: int  # of its vector; 0: it has none


class MemoryStore:
    """See `Store`. One lock: a search delays all other calls."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: OrderedDict[tuple[str, str], _Row] = OrderedDict()  # the least recently used first
        self._endings: list[tuple[float, str, str]] = []  # a heap; may name what is gone or was put anew
        # Without a bound: what an index forgot could not be read again.
        self._indexes = VectorIndexes(limit=1 << 62)

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        name = scope_name(scope)
        with self._lock:
            row = self._live(name, key)
            if row is None:
                return None
            self._rows.move_to_end((name, key))
            return row.entry

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        vector, name = checked_vector(vector), scope_name(scope)

        def fetch(keys: Sequence[str]) -> Mapping[str, Entry]:
            rows = {key: self._live(name, key) for key in keys}
            return {key: row.entry for key, row in rows.items() if row is not None}

        with self._lock, self._indexes.use(name, len(vector)) as index:
            found = index.find(vector, count, self._clock(), fetch)
            for _, key, _ in found:
                self._rows.move_to_end((name, key))
        return [(score, entry) for score, _, entry in found]

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        name = scope_name(scope)
        vector = None if vector is None else checked_vector(vector)
        with self._lock:
            self._drop(name, key)
            self._rows[name, key] = _Row(scope, entry, 0 if vector is None else len(vector))
            if vector is not None:
                with self._indexes.use(name, len(vector)) as index:
                    index.add([key], vector[None], [entry.expires_at])
            heapq.heappush(self._endings, (entry.expires_at, name, key))
            self._make_room()

    def clear(self, owner: Owner) -> int:
        wanted = owner._asdict().items()
        with self._lock:
            gone = [
                name
                for name, row in self._rows.items()
                if all(value in (None, getattr(row.scope, field)) for field, value in wanted)
            ]
            for name in gone:
                self._drop(*name)
            return len(gone)

    def count(self) -> int:
        return len(self._rows)

    def stats(self) -> StoreStats:
        now = self._clock()
        with self._lock:
            rows = [row for row in self._rows.values() if row.entry.expires_at > now]
        size = sum(len(row.entry.text) + len(row.entry.answer) + 4 * row.dimension for row in rows)
        return StoreStats(len(rows), size, len({row.scope.tenant for row in rows}))

    def close(self) -> None:
        with self._lock:
            self._rows.clear()
            self._endings.clear()
            self._indexes.clear()

    def _live(self, name: str, key: str) -> _Row | None:
        row = self._rows.get((name, key))
        # An expired one stays until the next put: its index may be in use here.
        return row if row is not None and row.entry.expires_at > self._clock() else None

    def _make_room(self) -> None:
        now = self._clock()
        while self._endings and self._endings[0][0] <= now:
            _, name, key = heapq.heappop(self._endings)
            if self._live(name, key) is None:
                self._drop(name, key)
        while len(self._rows) > self._limits.max_entries:
            self._drop(*next(iter(self._rows)))
        if len(self._endings) > 2 * len(self._rows) + 100:
            self._endings = [(row.entry.expires_at, *name) for name, row in self._rows.items()]
            heapq.heapify(self._endings)

    def _drop(self, name: str, key: str) -> None:
        row = self._rows.pop((name, key), None)
        if row is not None and row.dimension:
            with self._indexes.use(name, row.dimension) as index:
                index.drop([key])
