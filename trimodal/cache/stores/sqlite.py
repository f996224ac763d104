"""Stores answers in one SQLite file and their vectors in memory: needs no server.

It survives a restart and a kill. Several processes may share the file, as a second server or
`trimodal cache clear`: each sees what the others wrote or cleared with its next call, because an index reads
the rows that are new to it first and no answer is given without its row.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trimodal.cache.stores.base import Limits, Owner
from trimodal.cache.stores.codec import checked_vector, pack, read_vectors, scope_name, unpack
from trimodal.cache.stores.sqlite_file import Database
from trimodal.cache.stores.vector_index import FETCH, SCOPE_ROWS, VectorIndex, VectorIndexes
from trimodal.cache.values import CacheScope, Entry, StoreStats, Vector
from trimodal.errors import OperatorError
from trimodal.paths import expanded, setting_path

CHUNK = 2_000  # rows that an index reads at once; about 3 ms
PIECE = 1_000  # rows that one transaction deletes: others write in between


def open_store(url: str, limits: Limits) -> SqliteStore:
    """Opens the store in the file `url`, made with its folder when there is none. Raises OperatorError."""
    path = expanded(setting_path(url), "cache_store")
    if path.suffix != ".sqlite" and not path.is_dir():
        # A file that is no database is taken for a damaged one and set aside: never one named by mistake.
        raise OperatorError(f"cache_store '{url}': a file whose name ends with .sqlite is needed")
    return SqliteStore(path, limits)


class SqliteStore:
    """See `Store`."""

    def __init__(self, path: Path, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._clock = clock
        self._indexes = VectorIndexes()
        self._database = Database(path, limits.timeout_s)

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        name = scope_name(scope)
        with self._database.reading() as connection:
            return self._fetch(connection, name, [key]).get(key)

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        vector, name = checked_vector(vector), scope_name(scope)
        with self._indexes.use(name, len(vector)) as index, self._database.reading() as connection:
            self._catch_up(connection, index, name, len(vector))
            fetch = partial(self._fetch, connection, name, searched=True)
            return index.find(vector, count, self._clock(), fetch)

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        name = scope_name(scope)
        blob = None if vector is None else checked_vector(vector).tobytes()
        packed = pack(name, key, entry)
        owner = _blobs(scope.fingerprint, scope.tenant, scope.namespace)
        with self._database.writing() as writer:
            # Not REPLACE: it would pass the triggers by that count.
            writer.execute("DELETE FROM answers WHERE place = ? AND key = ?", (name, key))
            writer.execute(
                "INSERT INTO answers (place, key, expires_at, vector, fingerprint, tenant, namespace, packed)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, key, entry.expires_at, blob, *owner, packed),
            )
            self._make_room(writer)

    def clear(self, owner: Owner) -> int:
        wanted = {name: value for name, value in owner._asdict().items() if value is not None}
        where = " AND ".join(["WHERE 1", *(f"{name} = ?" for name in wanted)])
        values = _blobs(*wanted.values())
        total = 0
        while True:
            with self._database.writing() as writer:
                gone = _delete(writer, where, *values, PIECE)
                writer.execute("UPDATE tally SET cleared = cleared + 1")
            total += gone
            if gone < PIECE:
                self._database.checkpoint()
                return total

    def count(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT entries FROM tally").fetchone()[0])

    def stats(self) -> StoreStats:
        with self._database.reading() as connection:
            return StoreStats(
                *connection.execute(
                    "SELECT count(*), count(DISTINCT tenant) FROM answers WHERE expires_at > ?",
                    (self._clock(),),
                ).fetchone()
            )

    def close(self) -> None:
        self._database.close()
        self._indexes.clear()

    def _fetch(
        self, connection: sqlite3.Connection, name: str, keys: Sequence[str], searched: bool = False
    ) -> Mapping[str, Entry]:
        """Unexpired answers by key; `searched`: only those that have a vector."""
        found: dict[str, Entry] = {}
        for start in range(0, len(keys), FETCH):
            some = keys[start : start + FETCH]
            rows = connection.execute(
                f"SELECT key, packed FROM answers WHERE place = ? AND expires_at > ?"
                f" AND key IN ({','.join('?' * len(some))}) {'AND vector IS NOT NULL' if searched else ''}",
                (name, self._clock(), *some),
            )
            entries = ((key, unpack(name, key, packed)) for key, packed in rows)
            found |= {key: entry for key, entry in entries if entry is not None}
        return found

    def _catch_up(
        self, connection: sqlite3.Connection, index: VectorIndex, name: str, dimension: int
    ) -> None:
        """Reads the rows that are new to the index, for half of the limit; the next call reads on."""
        cleared = connection.execute("SELECT cleared FROM tally").fetchone()[0]
        if index.era != (self._database.era, cleared):
            index.reset()
            index.era = (self._database.era, cleared)
            index.seen = self._first(connection, name)
        until = time.monotonic() + self._limits.timeout_s / 2
        while True:
            rows = connection.execute(
                "SELECT number, key, expires_at, vector FROM answers"
                " WHERE place = ? AND number > ? AND vector IS NOT NULL ORDER BY number LIMIT ?",
                (name, index.seen, CHUNK),
            ).fetchall()
            if rows:
                numbers, keys, expires, blobs = zip(*rows, strict=True)
                index.seen = numbers[-1]
                good, vectors = read_vectors(blobs, dimension)
                index.add([keys[row] for row in good], vectors, [expires[row] for row in good])
            if len(rows) < CHUNK or time.monotonic() > until:
                return

    def _first(self, connection: sqlite3.Connection, name: str) -> int:
        """Returns the number before the newest rows that an index can hold."""
        row = connection.execute(
            "SELECT number FROM answers WHERE place = ? AND vector IS NOT NULL ORDER BY number DESC"
            " LIMIT 1 OFFSET ?",
            (name, SCOPE_ROWS),
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _make_room(self, writer: sqlite3.Connection) -> None:
        _delete(writer, "WHERE expires_at <= ?", self._clock(), PIECE)
        over = writer.execute("SELECT entries FROM tally").fetchone()[0] - self._limits.max_entries
        if over > 0:
            most = writer.execute("SELECT tenant FROM tenants ORDER BY entries DESC LIMIT 1").fetchone()
            _delete(writer, "WHERE tenant = ? ORDER BY number", *most, min(over, PIECE))


def _delete(writer: sqlite3.Connection, chosen: str, *values: object) -> int:
    """Drops the rows that are `chosen`, at most as many as the last of `values`; returns how many."""
    rows = f"SELECT number FROM answers {chosen} LIMIT ?"
    return writer.execute(f"DELETE FROM answers WHERE number IN ({rows})", values).rowcount


def _blobs(*values: str) -> tuple[bytes, ...]:
    return tuple(value.encode("utf-8", "surrogatepass") for value in values)
