"""Counts what each key uses: requests, tokens, audio and pictures a minute, and streams at once."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from trimodal.audio.values import SAMPLE_RATE
from trimodal.gateway.errors import ApiError, invalid
from trimodal.gateway.keys import Key

_MINUTE_S = 60.0
_LATELY = 8  # requests
# Refusals of one key that are told at once, then so many a minute: to read what is refused costs as well.
REFUSALS, REFUSAL_S = 60, 1.0
# Of one request, all its recordings together: half an hour of silence is 100 kB of FLAC.
MAX_AUDIO_S = 4 * 3600.0
# Of recordings that are decoded as a whole and held, 64 kB each: of a key, and of all.
KEY_HELD_S, HELD_S = 2_400.0, 4_800.0
# Unit → the key's limit, and what is reserved for a request before the key's first ones; None: it is known.
_UNITS = {
    "requests": ("requests_per_minute", None),
    "images": ("images_per_minute", None),
    "tokens": ("tokens_per_minute", 1000.0),
    "audio_seconds": ("audio_seconds_per_minute", 60.0),
}
Spent = defaultdict[str, float]
"""Unit → how much."""


@dataclass(frozen=True)
class Cost:
    """What a request is known to use before it runs. `audio`: it has recordings, of lengths not yet known."""

    requests: int = 1
    images: int = 0
    audio: bool = False


@dataclass
class Bucket:
    """A token bucket that holds a minute's worth and fills steadily. `left` may become negative: a debt."""

    limit: int
    left: float
    at: float
    reserved: float = 0.0  # for requests that run
    average: float = 0.0  # what a request of the key used lately

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
    buckets: dict[str, Bucket] = field(default_factory=dict)
    streams: int = 0
    refusals: Bucket = field(default_factory=lambda: Bucket(REFUSALS, REFUSALS, 0.0))


class HeldAudio:
    """Bounds the recordings that are held decoded; who would be beyond it waits. Of one event loop."""

    def __init__(self) -> None:
        self._samples: dict[str, int] = {}  # of each key
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    async def take(self, key: str, samples: int) -> None:
        """Waits until there is room; the key that holds least is the next."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((key, samples, turn))
        try:
            self._go_on()
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(key, samples)
            raise
        finally:
            self._waiting = [one for one in self._waiting if one[2] is not turn]

    def give(self, key: str, samples: int) -> None:
        """Gives room back."""
        left = self._samples.pop(key, 0) - samples
        if left > 0:
            self._samples[key] = left
        self._go_on()

    def _go_on(self) -> None:
        for key, samples, turn in sorted(self._waiting, key=lambda one: self._samples.get(one[0], 0)):
            own, total = self._samples.get(key, 0) + samples, sum(self._samples.values()) + samples
            if not turn.done() and own <= KEY_HELD_S * SAMPLE_RATE and total <= HELD_S * SAMPLE_RATE:
                self._samples[key] = own
                turn.set_result(None)


@dataclass
class KeyUsage:
    """One request's use of its key. Set `tokens` when they are known; they are charged at its end."""

    headers: Mapping[str, str]
    tokens: int = 0
    audio_s: float = 0.0
    audio: Bucket = field(default_factory=lambda: Bucket(0, 0.0, 0.0))
    key: str = ""
    room: HeldAudio = field(default_factory=HeldAudio)
    held: int = 0  # samples
    spent: Spent = field(default_factory=lambda: defaultdict(float))  # by its tenant, in all

    async def hold(self, samples: int) -> None:
        """Waits until there is room for another recording; not beside one, which would wait for itself."""
        await self.room.take(self.key, samples)
        self.held += samples

    def free(self, samples: int) -> None:
        """Gives room for recordings back."""
        self.room.give(self.key, samples)
        self.held -= samples

    def live(self, seconds: float) -> None:
        """Charges audio of a session, which may go on for ever."""
        self.audio_s += seconds
        self.audio.left -= seconds
        self.spent["audio_seconds"] += seconds

    def hear(self, seconds: float) -> None:
        """Charges audio, at once. Raises: ApiError 400 where a request has more than is taken."""
        self.live(seconds)
        if self.audio_s > MAX_AUDIO_S:
            raise invalid(
                f"the recordings of one request are longer than {MAX_AUDIO_S:g} s", code="audio_too_long"
            )


class Quota:
    """The use of all keys, by their hashes. Of one event loop: it has no lock.

    Tokens are known only after the answer, and the length of a recording when it is decoded: a request is let
    in while its key has any left, of which it reserves as many as the key's requests use on the average; what
    it uses beyond them is a debt that the next ones wait for.

    Attributes:
        spent: tenant → images, audio_seconds and tokens in all, of requests and of sessions.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: dict[str, _Used] = {}
        self._room = HeldAudio()
        self.spent = defaultdict[str, Spent](lambda: defaultdict(float))

    @contextmanager
    def use(
        self,
        key: Key,
        cost: Cost | None = None,
        *,
        counted: bool = False,
        held: bool = False,
        reserve: bool = True,
    ) -> Iterator[KeyUsage]:
        """Counts a request of this key while it runs. Raises: ApiError 429 when a limit is reached.

        Args:
            cost: what is known of it; those beyond a limit are a debt.
            counted: `count` has counted one of its requests, and let it in.
            held: it is part of a stream that is counted already.
            reserve: False: it uses no tokens itself, as a session that is counted while it is open.
        """
        cost = cost or Cost()
        used = self._of(key)
        buckets = used.buckets
        if not held:
            self._check_streams(used, key)
        wanted = {"requests": cost.requests - counted, "images": cost.images}
        checked = [name for name, count in wanted.items() if count and not (counted and name == "requests")]
        estimated = [name for name, due in (("tokens", reserve), ("audio_seconds", cost.audio)) if due]
        # Part of a stream that uses no tokens itself is not refused for those that the stream reserves.
        opens = [] if held and not reserve else ["tokens"]
        for name in (*checked, *opens, *estimated):
            self._check(used, name)
        for name, count in wanted.items():
            buckets[name].left -= count
        reserved = {name: min(buckets[name].average, float(buckets[name].limit)) for name in estimated}
        used.streams += not held
        audio, spent = buckets["audio_seconds"], self.spent[key.tenant]
        usage = KeyUsage(self._headers(used), audio=audio, key=key.hash, room=self._room, spent=spent)
        spent["images"] += cost.images
        for name, share in reserved.items():
            buckets[name].reserved += share
        try:
            yield usage
        finally:
            usage.free(usage.held)
            used.streams -= not held
            self._of(key)
            buckets["tokens"].left -= usage.tokens
            spent["tokens"] += usage.tokens
            own = {"tokens": usage.tokens, "audio_seconds": usage.audio_s}
            for name, share in reserved.items():
                bucket = buckets[name]
                bucket.reserved -= share
                if own[name]:  # one that was refused, or begun early and given up, tells nothing of others
                    bucket.average += (own[name] - bucket.average) / _LATELY

    def count(self, key: Key) -> None:
        """Counts a request that is not read yet: one that turns out wrong counts as well, as OpenAI's do.

        Raises: ApiError 429 where no request of this key would be let in now, whatever it asks for.
        """
        used = self._of(key)
        self._check_streams(used, key)
        for name in ("requests", "tokens"):
            self._check(used, name)
        used.buckets["requests"].left -= 1

    def check_audio(self, key: Key) -> None:
        """Raises: ApiError 429 where the key's audio of this minute is spent. For sessions, each piece."""
        self._check(self._of(key), "audio_seconds")

    def refusal_wait_s(self, key: Key) -> float:
        """Seconds that a refusal for this key's limits is held back: who asks on and on hears less often."""
        refusals = self._of(key).refusals
        refusals.refill(max(self._clock(), refusals.at), REFUSALS)
        wait_s = min(refusals.wait_s(1.0), REFUSAL_S)
        refusals.left = max(refusals.left - 1, 0.0)
        return wait_s

    def _check_streams(self, used: _Used, key: Key) -> None:
        if key.max_streams and used.streams >= key.max_streams:
            why = f"{used.streams} requests of this key run: {key.max_streams} are allowed"
            raise self._limited(used, why, 1.0)

    def _check(self, used: _Used, name: str) -> None:
        bucket = used.buckets[name]
        if not bucket.limit:
            return
        known = _UNITS[name][1] is None
        if bucket.left < 1 if known else bucket.left <= bucket.reserved:
            verb = "send" if known else "use"
            limit = f"{bucket.limit} {name.replace('_', ' ')} a minute"
            raise self._limited(used, f"this key may {verb} {limit}", bucket.wait_s(bucket.reserved + 1))

    def _limited(self, used: _Used, message: str, wait_s: float) -> ApiError:
        limits = self._headers(used)
        return ApiError(429, message, code="rate_limit_exceeded", retry_after_s=wait_s, limits=limits)

    def _of(self, key: Key) -> _Used:
        now = self._clock()
        used = self._used.setdefault(key.hash, _Used())
        for name, (limit_name, average) in _UNITS.items():
            limit: int = getattr(key, limit_name)
            bucket = used.buckets.get(name)
            if bucket is None:
                used.buckets[name] = Bucket(limit, limit, now, average=average or 0.0)
            else:
                bucket.refill(max(now, bucket.at), limit)
        return used

    @staticmethod
    def _headers(used: _Used) -> Mapping[str, str]:
        headers = {}
        for unit, bucket in used.buckets.items():
            if bucket.limit:
                name = unit.replace("_", "-")
                headers[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.left)))
                headers[f"x-ratelimit-reset-{name}"] = f"{bucket.wait_s(bucket.limit):.3f}s"
        return headers
