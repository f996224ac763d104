"""Defines how answers lie in Redis: names of keys, and the one script that writes.

    trimodal:answer:<owner>:<scope>:<key>    string with a TTL: "1" or "0" (has it a vector?), packed answer
    trimodal:vectors:<owner>:<scope>:<d>     stream of (key, vector, expiry), its newest entries only
    trimodal:used, trimodal:expires          sorted sets of the first kind's names: last use, end of life

<owner> is fingerprint, tenant and namespace, each as a digest: a name holds nothing that a client
wrote, so no tenant can pass for a pattern or for another. Not for a cluster: the script touches
keys of several slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimodal.cache.stores.base import Owner
from trimodal.cache.stores.codec import digest, scope_name
from trimodal.cache.values import CacheScope

PREFIX = "trimodal:"
USED = PREFIX + "used"
EXPIRES = PREFIX + "expires"
STEP = 100  # answers that one put removes at most, so that the server is not held up

# KEYS: answer, vectors, used, expires. ARGV: value, lifetime in ms, now, expires_at, key, vector or
# "", rows of the stream, entries in all, STEP. One script, so that no half of a put is left.
PUT = """
local function drop(names)
    for _, name in ipairs(names) do
        redis.call('UNLINK', name)
        redis.call('ZREM', KEYS[3], name)
        redis.call('ZREM', KEYS[4], name)
    end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[3], KEYS[1])
redis.call('ZADD', KEYS[4], ARGV[4], KEYS[1])
if ARGV[6] ~= '' then
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[7], '*', 'k', ARGV[5], 'v', ARGV[6], 'e', ARGV[4])
    if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
end
drop(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', ARGV[3], 'LIMIT', 0, ARGV[9]))
local over = redis.call('ZCARD', KEYS[3]) - tonumber(ARGV[8])
if over > 0 then drop(redis.call('ZRANGE', KEYS[3], 0, math.min(over, tonumber(ARGV[9])) - 1)) end
return over
"""


KINDS = (b"string", b"stream", b"zset", b"zset")  # of the script's keys


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


def patterns(owner: Owner) -> Sequence[str]:
    """SCAN patterns of all keys whose owner is this: of answers, then of vectors."""
    # Not "*", which would match colons: a tenant would be found in a namespace of its name.
    some = "?" * len(_short(""))
    name = ":".join(some if value is None else _short(value) for value in owner)
    return f"{PREFIX}answer:{name}:*", f"{PREFIX}vectors:{name}:*"


def drop_others(client: Any, keys: Sequence[str]) -> None:
    """Drops what another program put at the script's keys: the names are ours."""
    for key, kind in zip(keys, KINDS, strict=True):
        if client.type(key) not in (kind, b"none"):
            client.unlink(key)


def tenant_of(name: bytes) -> bytes:
    """Returns the tenant's digest in an answer's name."""
    return b"".join(name.split(b":")[3:4])


def _short(value: str) -> str:
    return digest(value)[:16]
