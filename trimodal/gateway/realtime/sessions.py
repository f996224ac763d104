"""Opens sessions, finds those that wait for their client, and ends all of them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from trimodal.client.client import Client
from trimodal.gateway.access import Access, Caller
from trimodal.gateway.errors import ApiError, invalid
from trimodal.gateway.realtime.hearing.detection import speech_detector
from trimodal.gateway.realtime.openai.config import Config
from trimodal.gateway.realtime.session import RESUME_S, Session


class Sessions:
    """All sessions of a gateway, each counted against its key's limits until it is over."""

    def __init__(self, client: Client, access: Access) -> None:
        self._client = client
        self._access = access
        self._sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        speech_detector(0.5)  # its network is opened now, not while others are heard

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, caller: Caller, config: Config) -> Session:
        """Begins a session. Raises: ApiError 429 (a limit of the key), 503 (the gateway goes down)."""
        self._refuse_while_draining()
        with ExitStack() as stack:
            stack.enter_context(self._access.quota.use(caller.key))
            client = self._client.with_metadata(caller.trace)
            session = Session(client, self._access, caller, config)
            self._sessions[session.id] = session
            task = asyncio.ensure_future(self._run(session, stack.pop_all()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    def find(self, identity: str, caller: Caller, after: int) -> Session:
        """The same key's session. Raises: ApiError 404, also where events after that number are gone."""
        self._refuse_while_draining()
        session = self._sessions.get(identity)
        if session is None or session.caller.key.hash != caller.key.hash or session.outbox.ending:
            raise ApiError(
                404, f"there is no such session: one ends {RESUME_S:g} s after its connection",
                param="session", code="session_not_found",
            )  # fmt: skip
        if not session.outbox.holds(after):
            raise invalid(f"after: events after {after} are not kept", status=404, code="events_not_kept")
        return session

    async def drain(self, timeout_s: float) -> None:
        """Opens none any more; ends those that run when they are done, or the time is over."""
        self._draining = True
        await asyncio.gather(*(session.drain(timeout_s) for session in list(self._sessions.values())))

    async def aclose(self) -> None:
        """Ends all at once."""
        self._draining = True
        for session in self._sessions.values():
            session.outbox.end(1001, "the server is going down")
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, session: Session, counted: ExitStack) -> None:
        with counted:
            try:
                await session.run()
            finally:
                del self._sessions[session.id]

    def _refuse_while_draining(self) -> None:
        if self._draining:
            raise ApiError(503, "the server is going down", code="server_shutdown", retry_after_s=1.0)
