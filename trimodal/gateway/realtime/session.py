"""Holds realtime sessions, each as long as its connection."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack

from trimodal.client.client import Client
from trimodal.gateway.access import Access, Caller
from trimodal.gateway.errors import ApiError, as_api_error
from trimodal.gateway.quota import KeyUsage
from trimodal.gateway.realtime.events import Event, check_texts, end_where_fatal, read_event
from trimodal.gateway.realtime.hearing.detection import speech_detector
from trimodal.gateway.realtime.openai.config import Config
from trimodal.gateway.realtime.openai.dialect import OpenAIDialect
from trimodal.gateway.realtime.openai.early import EarlyBudget
from trimodal.gateway.realtime.outbox import Outbox
from trimodal.gateway.realtime.vllm import VllmDialect

# 24 kHz PCM in base64 is 64 kB a second, 100 events of 10 ms as counted here 205 kB: a session may always
# send so much. What is faster shares its key's room, which a new session does not fill anew: two minutes of
# talk at once, then 16 times its speed.
LIVE_BYTES_PER_S = 256 << 10
BURST_BYTES = 8 << 20
BYTES_PER_S = 1 << 20
EVENT_BYTES = 2_048  # an event counts as so much at least: 512 a second
IDLE_S = 300.0
# A revoked key ends its sessions within two of these.
_CHECK_S = 0.25


class Pace:
    """Slows sessions of one key that send faster than anybody speaks: a bucket that fills steadily."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(BURST_BYTES)
        self._at = clock()

    def session(self) -> Callable[[int], float]:
        """For a new session: seconds until an event of this size, which is counted now, may be handled."""
        own, at = float(LIVE_BYTES_PER_S), self._clock()

        def wait_s(size: int) -> float:
            nonlocal own, at
            now = self._clock()
            own, at = min(LIVE_BYTES_PER_S, own + (now - at) * LIVE_BYTES_PER_S), now
            live = min(own, max(size, EVENT_BYTES))
            own -= live
            return self._wait_s(now, max(size, EVENT_BYTES) - live)

        return wait_s

    def _wait_s(self, now: float, size: float) -> float:
        self._left = min(BURST_BYTES, self._left + (now - self._at) * BYTES_PER_S) - size
        self._at = now
        return max(0.0, -self._left / BYTES_PER_S) if size else 0.0


class Session:
    """One session: its client's events go in by `handle`, what they bring comes out of `outbox`."""

    def __init__(
        self,
        client: Client,
        access: Access,
        caller: Caller,
        config: Config,
        usage: KeyUsage,
        budget: EarlyBudget,
        wait_s: Callable[[int], float],
    ) -> None:
        self.id = f"sess_{secrets.token_hex(16)}"
        self.caller = caller
        self.outbox = Outbox()
        self.over = asyncio.Event()  # nothing more happens and the server is free
        self._client = client
        self._access = access
        self._wait_s = wait_s
        self._usage = usage
        self._handling = asyncio.Lock()
        self._active_at = time.monotonic()
        openai = OpenAIDialect(self.id, client, caller, access.quota, self.outbox, config, budget)
        self._dialect: OpenAIDialect | VllmDialect = openai
        # `id` and `created` are vLLM's, the rest is OpenAI's.
        self.outbox.put("session.created", session=openai.session, id=self.id, created=int(time.time()))

    async def handle(self, text: str) -> None:
        """Handles a frame; waits where a client sends faster than anybody speaks."""
        async with self._handling:
            if self.outbox.ending:
                return
            await asyncio.sleep(self._wait_s(len(text)))
            self._active_at = time.monotonic()
            event: Event = {}
            try:
                event = read_event(text)
                self._choose(event)
                before = self._dialect.seconds
                if event["type"] == "input_audio_buffer.append":
                    self._access.quota.check_audio(self.caller.key)
                else:
                    check_texts(event)
                try:
                    await self._dialect.handle(event)
                finally:  # its client may leave while it is handled
                    self._usage.live(self._dialect.seconds - before)
            except Exception as error:
                cause = event.get("event_id")
                failure = as_api_error(error, self.caller.request_id)
                self._dialect.tell(failure, cause if isinstance(cause, str) else None)
                end_where_fatal(self.outbox, error)

    async def run(self) -> None:
        """Watches over the session until it ends, then frees the server."""
        try:
            while self.outbox.ending is None:
                await asyncio.sleep(_CHECK_S)
                self._check()
        finally:
            await self._dialect.aclose()
            async with self._handling:  # an event that was being handled may have begun another turn
                await self._dialect.aclose()
            self.over.set()

    async def drain(self, timeout_s: float) -> None:
        """Ends the session when what its client has asked for is done, or the time is over."""
        until = time.monotonic() + timeout_s
        while self._dialect.busy and time.monotonic() < until and self.outbox.ending is None:
            await asyncio.sleep(0.05)
        self._end(1001, "the server is going down", "connect again", "server_shutdown")

    def _end(self, code: int, reason: str, advice: str, name: str, status: int = 503) -> None:
        self._dialect.tell(ApiError(status, f"{reason}: {advice}", code=name))
        self.outbox.end(code, reason)

    def _check(self) -> None:
        now = time.monotonic()
        if not self._access.holds(self.caller.key):
            self._end(1008, "this API key was revoked", "the session ends", "invalid_api_key", 401)
        elif self._dialect.busy:
            self._active_at = now
        elif now - self._active_at > IDLE_S:
            self._end(1008, f"no event came for {IDLE_S:g} s", "the session ends", "session_idle", 408)

    def _choose(self, event: Event) -> None:
        """vLLM's session.update has the model itself, OpenAI's has a session."""
        vllm = event["type"] == "session.update" and "session" not in event and "model" in event
        if vllm and isinstance(self._dialect, OpenAIDialect):
            if self._dialect.begun:
                raise ApiError(400, "session.update: the dialect cannot change once audio was sent")
            self._dialect = VllmDialect(self._client, self.caller, self.outbox)


class Sessions:
    """All sessions of a gateway, each counted against its key's limits until it is over."""

    def __init__(self, client: Client, access: Access, budget: Callable[[], EarlyBudget]) -> None:
        self._client = client
        self._access = access
        self._budgets = defaultdict[str, EarlyBudget](budget)  # of each key, by its hash
        self._paces = defaultdict[str, Pace](Pace)
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._draining = False
        speech_detector(0.5)  # its network is opened now, not while others are heard

    def open(self, caller: Caller, config: Config) -> Session:
        """Begins a session. Raises: ApiError 429 (a limit of the key), 503 (the gateway goes down)."""
        if self._draining:
            raise ApiError(503, "the server is going down", code="server_shutdown", retry_after_s=1.0)
        with ExitStack() as stack:
            usage = stack.enter_context(self._access.quota.use(caller.key, reserve=False))
            client = self._client.with_metadata(caller.trace, caller.request_id)
            key = caller.key.hash
            # Without keys nobody is kept from anybody: each session has a room of its own.
            wait_s = (self._paces[key] if key else Pace()).session()
            session = Session(client, self._access, caller, config, usage, self._budgets[key], wait_s)
            self._sessions[session] = asyncio.ensure_future(self._run(session, stack.pop_all()))
        return session

    async def drain(self, timeout_s: float) -> None:
        """Opens none any more; ends those that run when they are done, or the time is over."""
        self._draining = True
        await asyncio.gather(*(session.drain(timeout_s) for session in list(self._sessions)))

    async def aclose(self) -> None:
        """Ends all at once."""
        self._draining = True
        for session in self._sessions:
            session.outbox.end(1001, "the server is going down")
        if self._sessions:
            await asyncio.wait(self._sessions.values())

    async def _run(self, session: Session, counted: ExitStack) -> None:
        with counted:
            try:
                await session.run()
            finally:
                del self._sessions[session]
