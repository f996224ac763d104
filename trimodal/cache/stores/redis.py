"""Stores answers in a Redis that several servers share (6.2 or newer, plain: no modules, no cluster).

An answer is one key with a TTL; vectors lie in one stream a scope, which each server indexes and reads on
from where it was. No call waits longer than the limit for a reply, and none is retried: a Redis that is down
costs one error a call. What does not look like an answer is dropped. Beside `max_entries` the eviction
policy of the Redis server itself applies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from trimodal.cache.stores import redis_layout as layout
from trimodal.cache.stores.base import Limits, Owner, Recency, StoreError
from trimodal.cache.stores.codec import checked_vector, pack, read_vectors, unpack
from trimodal.cache.stores.redis_layout import EXPIRES, USED, Names
from trimodal.cache.stores.vector_index import SCOPE_ROWS, VectorIndex, VectorIndexes
from trimodal.cache.values import CacheScope, Entry, StoreStats, Vector
from trimodal.errors import OperatorError

CHUNK = 500  # vectors or keys asked for at once
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
# A value that others made long is cut here, and then is no answer.
VALUE_BYTES = 16 << 20


def open_store(url: str, limits: Limits) -> RedisStore:
    """Opens `redis[s]://[user:password@]host[:port][/database][?ssl_...]`. Raises OperatorError."""
    try:
        options = parse_qs(urlsplit(url).query, keep_blank_values=True)
        waits = {"socket_timeout": limits.timeout_s, "socket_connect_timeout": limits.timeout_s}
        client = redis.Redis.from_url(url, **waits, retry=Retry(NoBackoff(), 0), protocol=2)
    except (ValueError, TypeError):
        # What the error says may hold the password.
        raise OperatorError(
            "cache_store: redis://user:password@host:port/0 is the form; write a special character as %2F"
        ) from None
    allowed = TLS_OPTIONS if urlsplit(url).scheme == "rediss" else ()
    for name in options:
        if name not in allowed:
            raise OperatorError(f"cache_store: '{name}' is no option; rediss has {', '.join(TLS_OPTIONS)}")
    return RedisStore(client, limits)


class RedisStore:
    """See `Store`."""

    def __init__(self, client: redis.Redis, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._client: Any = client  # its stubs mix the two clients' types
        self._limits = limits
        self._clock = clock
        self._uses = Recency()
        self._indexes = VectorIndexes()
        self._rows = min(SCOPE_ROWS, limits.max_entries)

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        names = Names.of(scope)
        with _told():
            found = self._fetch(names, [key])
        if key in found:
            self._uses.note(names.answer, key, self._clock())
        return found.get(key)

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        vector, names = checked_vector(vector), Names.of(scope)
        with _told(), self._indexes.use(names.scope, len(vector)) as index:
            self._catch_up(index, f"{names.vectors}{len(vector)}", len(vector))
            now = self._clock()
            found = index.find(vector, count, now, lambda keys: self._fetch(names, keys, searched=True))
        for _, key, _ in found:
            self._uses.note(names.answer, key, now)
        return [(score, entry) for score, _, entry in found]

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        names, now = Names.of(scope), self._clock()
        blob = b"" if vector is None else checked_vector(vector).astype("<f4").tobytes()
        value = (b"1" if blob else b"0") + pack(names.scope, key, entry)
        lifetime = math.ceil((entry.expires_at - now) * 1_000)
        keys = (f"{names.answer}{key}", f"{names.vectors}{len(blob) // 4}", USED, EXPIRES)
        with _told():
            if lifetime <= 0:
                self._client.unlink(keys[0])
                return
            values = (value, lifetime, now, entry.expires_at, key, blob, self._rows, self._limits.max_entries)
            for attempt in range(2):
                try:
                    self._write_uses()
                    self._client.eval(layout.PUT, len(keys), *keys, *values, layout.STEP)
                    return
                except ResponseError as error:
                    if attempt or "WRONGTYPE" not in str(error):
                        raise
                    layout.drop_others(self._client, keys)

    def clear(self, owner: Owner) -> int:
        removed = []
        with _told():
            for pattern in layout.patterns(owner):
                total, cursor = 0, -1
                while cursor:
                    cursor, found = self._client.scan(max(cursor, 0), match=pattern, count=CHUNK)
                    if found:
                        total += self._client.unlink(*found)
                        self._client.zrem(USED, *found)
                        self._client.zrem(EXPIRES, *found)
                removed.append(total)
        return removed[0]  # answers; then streams of vectors

    def count(self) -> int:
        """Those that the server itself evicted count until they would have expired."""
        with _told():
            return int(self._client.zcount(EXPIRES, f"({self._clock()}", "+inf"))

    def stats(self) -> StoreStats:
        """Asks for the size of every answer: for the command, not for a gauge."""
        entries, size, tenants, now = 0, 0, set(), self._clock()
        with _told():
            cursor = -1
            while cursor:
                cursor, found = self._client.zscan(EXPIRES, max(cursor, 0), count=CHUNK)
                names = [name for name, expires_at in found if expires_at > now]
                pipeline = self._client.pipeline(transaction=False)
                for name in names:
                    pipeline.strlen(name)
                lengths = dict(zip(names, pipeline.execute(), strict=True)) if names else {}
                for name, length in lengths.items():
                    if length:  # else the server made room for others
                        entries, size = entries + 1, size + length
                        tenants.add(layout.tenant_of(name))
        return StoreStats(entries, size, len(tenants))

    def close(self) -> None:
        with suppress(StoreError), _told():
            self._write_uses()
        self._client.close()
        self._indexes.clear()

    def _fetch(self, names: Names, keys: Sequence[str], searched: bool = False) -> Mapping[str, Entry]:
        """Unexpired answers by key; `searched`: only those that have a vector. Drops what is no answer."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.getrange(f"{names.answer}{key}", 0, VALUE_BYTES)
        now, found, poisoned = self._clock(), {}, []
        for key, value in zip(keys, pipeline.execute(raise_on_error=False), strict=True):
            if value == b"":
                continue
            if isinstance(value, Exception) and "WRONGTYPE" not in str(value):
                raise value
            entry = unpack(names.scope, key, value[1:]) if isinstance(value, bytes) else None
            if entry is None:
                poisoned.append(f"{names.answer}{key}")
            elif entry.expires_at > now and not (searched and value[:1] != b"1"):
                found[key] = entry
        if poisoned:
            self._client.unlink(*poisoned)
        return found

    def _catch_up(self, index: VectorIndex, stream: str, dimension: int) -> None:
        """Reads the vectors that are new to the index, for half of the limit; the next call reads on."""
        until = time.monotonic() + self._limits.timeout_s / 2
        while True:
            pipeline = self._client.pipeline(transaction=False)
            pipeline.xrange(stream, f"({index.seen}" if index.seen else "-", "+", CHUNK)
            pipeline.xrevrange(stream, "+", "-", 1)
            rows, newest = pipeline.execute(raise_on_error=False)
            if isinstance(rows, Exception):
                if "WRONGTYPE" not in str(rows):
                    raise rows
                self._client.unlink(stream)
                rows, newest = [], []
            if not newest or (index.seen and _order(newest[0][0]) < _order(index.seen)):
                # Cleared, or lost with its server; what came after it is read from the start.
                index.reset()
                if not newest:
                    return
                continue
            if rows:
                index.seen = rows[-1][0].decode()
                named = [one for _, fields in rows if (one := _named(fields)) is not None]
                good, vectors = read_vectors([blob for _, _, blob in named], dimension)
                index.add([named[row][0] for row in good], vectors, [named[row][1] for row in good])
            if len(rows) < CHUNK or time.monotonic() > until:
                return

    def _write_uses(self) -> None:
        uses = {f"{names}{key}": used_at for names, key, used_at in self._uses.take()}
        if uses:
            self._client.zadd(USED, uses, xx=True, gt=True)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the client as StoreError. A sentence of Redis names no password."""
    try:
        yield
    except (RedisError, OSError, ValueError) as error:
        raise StoreError(f"Redis: {error or type(error).__name__}") from None


def _order(number: object) -> tuple[int, ...]:
    """Returns a stream's entry by age: "1700000000000-0"."""
    text = number.decode() if isinstance(number, bytes) else str(number)
    return tuple(int(part) for part in text.split("-"))


def _named(fields: Mapping[bytes, bytes] | None) -> tuple[str, float, object] | None:
    """Key, expiry and vector of a stream's entry; nothing where another program wrote it."""
    if not fields:
        return None
    try:
        key, expires_at = fields[b"k"].decode(), float(fields[b"e"])
    except (KeyError, ValueError):
        return None
    return (key, expires_at, fields.get(b"v")) if math.isfinite(expires_at) else None
