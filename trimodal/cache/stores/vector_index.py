"""Searches vectors in memory, for the stores whose server or file cannot search.

An index may lag behind its store in one way only: it may still hold what is gone there. So a search asks the
store for the answers that it would give, and forgets those that are gone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from trimodal.cache.values import Entry, Vector

# One product over so many vectors of 384 takes about 5 ms on one core; a longer one would eat the budget.
SCOPE_ROWS = 50_000
ALL_BYTES = 256 << 20
OVERHEAD = 2_048  # bytes of an empty index, about
FETCH = 1_000  # answers asked for at once, at most


class VectorIndex:
    """The vectors of one scope, float32[d] each; beyond `rows` those that expire first are left out.

    Hold `lock` while calling. `seen` and `era` are the store's: how far it has read, and of what.
    """

    def __init__(self, dimension: int, rows: int = SCOPE_ROWS) -> None:
        self.lock = threading.Lock()
        self._dimension = dimension
        self._limit = rows
        self.reset()

    def reset(self) -> None:
        self.seen: int | str = 0
        self.era: object = None
        self._vectors: NDArray[np.float32] = np.empty((0, self._dimension), np.float32)
        self._expires: NDArray[np.float64] = np.empty(0, np.float64)
        self._names: list[str] = []
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        # A name of 64 characters is held once, in a list and in a dict.
        return OVERHEAD + self._vectors.nbytes + self._expires.nbytes + 250 * len(self._names)

    def add(self, names: Sequence[str], vectors: Vector, expires: Sequence[float]) -> None:
        """Adds or replaces vectors, float32[n, d]; beyond the limit those that expire first are left out."""
        self._reserve(sum(name not in self._rows for name in names))
        rows = []
        for name in names:
            row = self._rows.setdefault(name, len(self._names))
            if row == len(self._names):
                self._names.append(name)
            rows.append(row)
        self._vectors[rows] = vectors
        self._expires[rows] = expires
        over = len(self._names) - self._limit
        if over > 0:
            # Some more at once: the next ones then find room.
            count = max(over, self._limit // 10)
            first = np.argpartition(self._expires[: len(self._names)], count - 1)[:count]
            self.drop([self._names[row] for row in first])

    def drop(self, names: Sequence[str]) -> None:
        """Forgets these; unknown ones are ignored."""
        for name in names:
            row = self._rows.pop(name, None)
            if row is None:
                continue
            last = len(self._names) - 1
            moved = self._names.pop()
            if row != last:  # the last one fills the gap
                self._vectors[row] = self._vectors[last]
                self._expires[row] = self._expires[last]
                self._names[row] = moved
                self._rows[moved] = row

    def best(self, vector: Vector, count: int, now: float) -> list[tuple[float, str]]:
        """At most `count` unexpired names by cosine, best first; expired ones are forgotten."""
        expired = np.flatnonzero(self._expires[: len(self._names)] <= now)
        self.drop([self._names[row] for row in expired])
        size = len(self._names)
        if size == 0 or count < 1:
            return []
        # Not BLAS: as fast on one core, and its threads would wait for those of the engine.
        scores = np.einsum("ij,j->i", self._vectors[:size], vector)
        rows = np.argpartition(scores, -count)[-count:] if count < size else np.arange(size)
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        return [(float(np.clip(scores[row], -1, 1)), self._names[row]) for row in rows]

    def find(
        self, vector: Vector, count: int, now: float, fetch: Callable[[Sequence[str]], Mapping[str, Entry]]
    ) -> list[tuple[float, Entry]]:
        """The best that the store still has: `fetch` gives the answers of names that are there now."""
        wanted = count
        while True:
            ranked = self.best(vector, wanted, now)
            entries = fetch([name for _, name in ranked]) if ranked else {}
            gone = [name for _, name in ranked if name not in entries]
            found = [(score, entries[name]) for score, name in ranked if name in entries]
            self.drop(gone)
            if not gone or len(found) >= count:
                return found[:count]
            wanted = min(2 * wanted, FETCH)  # much is gone: larger steps

    def _reserve(self, more: int) -> None:
        """Makes the arrays long enough for so many new names."""
        size = len(self._names)
        if size + more > len(self._vectors):
            rows = max(4, size + more, min(self._limit, 2 * size))
            vectors = np.empty((rows, self._dimension), np.float32)
            expires = np.empty(rows, np.float64)
            vectors[:size], expires[:size] = self._vectors[:size], self._expires[:size]
            self._vectors, self._expires = vectors, expires


class VectorIndexes:
    """Vector indexes by scope and dimension; the least recently used ones make room beyond `limit` bytes."""

    def __init__(self, limit: int = ALL_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._indexes: OrderedDict[tuple[str, int], VectorIndex] = OrderedDict()
        self._bytes: dict[tuple[str, int], int] = {}
        self._total = 0

    def __len__(self) -> int:
        with self._lock:
            return len(self._indexes)

    @contextmanager
    def use(self, scope: str, dimension: int) -> Iterator[VectorIndex]:
        """Yields the scope's index, locked: a scope's searches go one after the other, scopes do not wait.

        An empty one is not kept: most scopes are asked once and hold nothing.
        """
        name = (scope, dimension)
        with self._lock:
            index = self._indexes.pop(name, None)
            if index is None:  # one that is in use and empty is false
                index = VectorIndex(dimension)
            self._indexes[name] = index
        try:
            with index.lock:
                yield index
        finally:
            self._settle(name, index)

    def _settle(self, name: tuple[str, int], index: VectorIndex) -> None:
        """Counts what the index takes now."""
        with self._lock:
            if self._indexes.get(name) is index:
                size = index.nbytes
                self._total += size - self._bytes.get(name, 0)
                self._bytes[name] = size
                if not len(index):
                    del self._indexes[name]
                    self._total -= self._bytes.pop(name)
            while self._total > self._limit and len(self._indexes) > 1:
                oldest, _ = self._indexes.popitem(last=False)
                self._total -= self._bytes.pop(oldest, 0)

    def clear(self) -> None:
        with self._lock:
            self._indexes.clear()
            self._bytes.clear()
            self._total = 0
