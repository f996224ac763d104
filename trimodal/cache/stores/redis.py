"""Stores answers in a Redis that several servers share (6.2 or newer, plain: no modules, no cluster).

    trimodal:answer:<owner>:<scope>:<key>    string with a TTL: "1" or "0" (has it a vector?), packed answer
    trimodal:vectors:<owner>:<scope>:<d>     stream of (key, vector, expiry), its newest entries only
    trimodal:stored, trimodal:expires        sorted sets of the first kind's names: when stored, end of life
    trimodal:stored:<tenant>                 the same of one tenant; trimodal:counts: how many each has

<owner> is fingerprint, tenant and namespace, each as a digest: a name holds nothing that a client wrote, so
no tenant can pass for a pattern or for another. Each server indexes the vectors of a scope, and reads on
from where it was. No call waits longer than the limit for a reply, and none is retried: a Redis that is down
costs one error a call. Beside `max_entries` the eviction policy of the Redis server itself applies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from trimodal.cache.stores.base import Limits, Owner, StoreError
from trimodal.cache.stores.codec import checked_vector, digest, pack, read_vectors, scope_name, unpack
from trimodal.cache.stores.vector_index import SCOPE_ROWS, VectorIndex, VectorIndexes
from trimodal.cache.values import CacheScope, Entry, StoreStats, Vector
from trimodal.errors import OperatorError

CHUNK = 500  # vectors or keys asked for at once
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
# A value that others made long is cut here, and then is no answer.
VALUE_BYTES = 16 << 20

PREFIX = "trimodal:"
STORED = PREFIX + "stored"
EXPIRES = PREFIX + "expires"
STEP = 100  # answers that one put removes at most, so that the server is not held up

# Names' owners are theirs in `Names.of`.
DROP = """
local function count(tenant)
    local held = redis.call('ZCARD', 'trimodal:stored:' .. tenant)
    redis.call('ZADD', 'trimodal:counts', held, tenant)
end
local function drop(names)
    local gone = 0
    for _, name in ipairs(names) do
        gone = gone + redis.call('UNLINK', name)
        redis.call('ZREM', 'trimodal:stored', name)
        redis.call('ZREM', 'trimodal:expires', name)
        local tenant = string.match(name, '^trimodal:answer:[^:]*:([^:]*):')
        if tenant then
            redis.call('ZREM', 'trimodal:stored:' .. tenant, name)
            count(tenant)
        end
    end
    redis.call('ZREMRANGEBYSCORE', 'trimodal:counts', '-inf', 0)
    return gone
end
"""
UNLINK = DROP + "return drop(ARGV)"
# KEYS: answer, vectors, stored, expires. ARGV: value, lifetime in ms, now, expires_at, key, vector or
# "", rows of the stream, entries in all, STEP, tenant. One script, so that no half of a put is left.
PUT = (
    DROP
    + """
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[3], KEYS[1])
redis.call('ZADD', KEYS[4], ARGV[4], KEYS[1])
redis.call('ZADD', KEYS[3] .. ':' .. ARGV[10], ARGV[3], KEYS[1])
count(ARGV[10])
if ARGV[6] ~= '' then
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[7], '*', 'k', ARGV[5], 'v', ARGV[6], 'e', ARGV[4])
    if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
end
drop(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ARGV[3], 'LIMIT', 0, ARGV[9]))
local held = redis.call('ZCARD', KEYS[3])
local over = held - tonumber(ARGV[8])
if over > 0 then
    local most = KEYS[3] .. ':' .. redis.call('ZREVRANGE', 'trimodal:counts', 0, 0)[1]
    -- Either may have been evicted: where they cannot be of all entries, the oldest of all go.
    local known = redis.call('ZCARD', most) * redis.call('ZCARD', 'trimodal:counts') >= held
    drop(redis.call('ZRANGE', known and most or KEYS[3], 0, math.min(over, tonumber(ARGV[9])) - 1))
end
return over
"""
)


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


@dataclass(frozen=True)
class Names:
    """Names of one scope's keys."""

    scope: str
    answer: str  # and the answer's key behind it
    vectors: str  # and the dimension behind it

    @classmethod
    def of(cls, scope: CacheScope) -> Names:
        owner = ":".join(_short(value) for value in (scope.fingerprint, scope.tenant, scope.namespace))
        name = scope_name(scope)
        return cls(name, f"{PREFIX}answer:{owner}:{name}:", f"{PREFIX}vectors:{owner}:{name}:")


class RedisStore:
    """See `Store`."""

    def __init__(self, client: redis.Redis, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._client: Any = client  # its stubs mix the two clients' types
        self._limits = limits
        self._clock = clock
        self._indexes = VectorIndexes()
        self._rows = min(SCOPE_ROWS, limits.max_entries)

    def get(self, scope: CacheScope, key: str) -> Entry | None:
        with _store_errors():
            return self._fetch(Names.of(scope), [key]).get(key)

    def nearest(self, scope: CacheScope, vector: Vector, count: int) -> list[tuple[float, Entry]]:
        vector, names = checked_vector(vector), Names.of(scope)
        with _store_errors(), self._indexes.use(names.scope, len(vector)) as index:
            self._catch_up(index, f"{names.vectors}{len(vector)}", len(vector))
            return index.find(vector, count, self._clock(), partial(self._fetch, names, searched=True))

    def put(self, scope: CacheScope, key: str, entry: Entry, vector: Vector | None) -> None:
        names, now = Names.of(scope), self._clock()
        blob = b"" if vector is None else checked_vector(vector).astype("<f4").tobytes()
        value = (b"1" if blob else b"0") + pack(names.scope, key, entry)
        lifetime = math.ceil((entry.expires_at - now) * 1_000)
        keys = (f"{names.answer}{key}", f"{names.vectors}{len(blob) // 4}", STORED, EXPIRES)
        values = (value, lifetime, now, entry.expires_at, key, blob, self._rows, self._limits.max_entries)
        with _store_errors():
            if lifetime > 0:
                self._client.eval(PUT, len(keys), *keys, *values, STEP, _short(scope.tenant))
            else:
                self._client.eval(UNLINK, 0, keys[0])  # it counts no more

    def clear(self, owner: Owner) -> int:
        # Not "*", which would match colons: a tenant would be found in a namespace of its name.
        some = "?" * len(_short(""))
        name = ":".join(some if value is None else _short(value) for value in owner)
        with _store_errors():
            count = self._unlink(f"{PREFIX}answer:{name}:*")
            self._unlink(f"{PREFIX}vectors:{name}:*")
        return count

    def count(self) -> int:
        """Those that the server itself evicted count until they would have expired."""
        with _store_errors():
            return int(self._client.zcount(EXPIRES, f"({self._clock()}", "+inf"))

    def stats(self) -> StoreStats:
        """Counts as `count` does."""
        now = self._clock()
        with _store_errors():
            names = {name for name, ends in self._client.zscan_iter(EXPIRES, count=CHUNK) if ends > now}
        return StoreStats(len(names), len({name.split(b":")[3] for name in names}))

    def close(self) -> None:
        self._client.close()
        self._indexes.clear()

    def _unlink(self, pattern: str) -> int:
        count = 0
        names = list(self._client.scan_iter(pattern, count=CHUNK))
        for start in range(0, len(names), CHUNK):
            some = names[start : start + CHUNK]
            count += self._client.eval(UNLINK, 0, *some)
        return count

    def _fetch(self, names: Names, keys: Sequence[str], searched: bool = False) -> Mapping[str, Entry]:
        """Unexpired answers by key; `searched`: only those that have a vector. Drops what is no answer."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.getrange(f"{names.answer}{key}", 0, VALUE_BYTES)
        now, found, poisoned = self._clock(), {}, []
        for key, value in zip(keys, pipeline.execute(), strict=True):
            if value == b"":
                continue
            entry = unpack(names.scope, key, value[1:])
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
            rows, newest = pipeline.execute()
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


@contextmanager
def _store_errors() -> Iterator[None]:
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


def _short(value: str) -> str:
    return digest(value)[:16]
