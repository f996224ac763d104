"""Counts what each key uses: requests and tokens a minute, streams at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import Key

_MINUTE_S = 60.0
_LATELY = 8  # requests


@dataclass
class Bucket:
    """A token bucket that holds a minute's worth and fills steadily. `left` may become negative: a debt."""

    limit: int
    left: float
    at: float

    def refill(self, now: float, limit: int) -> None:
        if self.limit:
            self.left = min(float(limit), self.left + (now - self.at) * limit / _MINUTE_S)
        else:  # there was no limit until now
            self.left = float(limit)
        self.limit, self.at = limit, now

    def wait_s(self, wanted: float) -> float:
        """Seconds until `wanted` are there."""
        return max(0.0, (wanted - self.left) * _MINUTE_S / self.limit)


@dataclass
class _Used:
    requests: Bucket
    tokens: Bucket
    streams: int = 0
    reserved: float = 0.0  # tokens, of requests that run
    average: float = 1000.0  # tokens that a request of the key used lately; before its first ones: many


@dataclass
class KeyUsage:
    """One request's use of its key. Set `tokens` when they are known; they are charged at its end."""

    headers: Mapping[str, str]
    tokens: int = 0


class Quota:
    """The use of all keys, by their hashes. Of one event loop: it has no lock.

    Tokens are known only after the answer: a request is let in while its key has any left, of which it
    reserves as many as the key's requests use on the average; what it uses beyond them is a debt that the
    next ones wait for.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: dict[str, _Used] = {}

    @contextmanager
    def use(
        self, key: Key, *, held: bool = False, requests: int = 1, reserve: bool = True
    ) -> Iterator[KeyUsage]:
        """Counts a request of this key while it runs. Raises: ApiError 429 when a limit is reached.

        Args:
            held: it is part of a stream that is counted already.
            requests: as how many it counts; those beyond the limit are a debt.
            reserve: False: it uses no tokens itself, as a session that is counted while it is open.
        """
        used, now = self._of(key), self._clock()
        if not held and key.max_streams and used.streams >= key.max_streams:
            raise _limited(f"{used.streams} requests of this key run: {key.max_streams} are allowed", 1.0)
        if key.requests_per_minute and used.requests.left < 1:
            limit = f"{key.requests_per_minute} requests a minute"
            raise _limited(f"this key may send {limit}", used.requests.wait_s(1))
        if key.tokens_per_minute and used.tokens.left <= used.reserved:
            limit = f"{key.tokens_per_minute} tokens a minute"
            raise _limited(f"this key may use {limit}", used.tokens.wait_s(used.reserved + 1))
        used.requests.left -= requests
        used.streams += not held
        usage = KeyUsage(self._headers(key, used))
        reserved = min(used.average, float(key.tokens_per_minute)) if reserve else 0.0
        used.reserved += reserved
        try:
            yield usage
        finally:
            used.streams -= not held
            used.tokens.refill(max(now, self._clock()), key.tokens_per_minute)
            used.tokens.left -= usage.tokens
            used.reserved -= reserved
            if reserve:
                used.average += (usage.tokens - used.average) / _LATELY

    def _of(self, key: Key) -> _Used:
        now = self._clock()
        used = self._used.get(key.hash)
        if used is None:
            requests = Bucket(key.requests_per_minute, key.requests_per_minute, now)
            tokens = Bucket(key.tokens_per_minute, key.tokens_per_minute, now)
            used = self._used[key.hash] = _Used(requests, tokens)
        used.requests.refill(now, key.requests_per_minute)
        used.tokens.refill(now, key.tokens_per_minute)
        return used

    @staticmethod
    def _headers(key: Key, used: _Used) -> Mapping[str, str]:
        headers = {}
        for name, bucket in (("requests", used.requests), ("tokens", used.tokens)):
            if bucket.limit:
                headers[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.left)))
                headers[f"x-ratelimit-reset-{name}"] = f"{bucket.wait_s(bucket.limit):.3g}s"
        return headers


def _limited(message: str, wait_s: float) -> ApiError:
    return ApiError(429, message, code="rate_limit_exceeded", retry_after_s=wait_s)
