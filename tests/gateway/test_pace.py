"""Large bodies of one key beside others: they come slowly, and keep nobody's room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive, Scope, Send

from trimodal.gateway import limits
from trimodal.gateway.access import Access, Caller
from trimodal.gateway.keys import Key
from trimodal.gateway.limits import BODY_BYTES_PER_S, BURST_BYTES, HELD_BODIES, BodyLimits, _Pace

FLOOD, OTHER = (Key(name=name, hash=f"sha256:{name * 64}") for name in "ab")
PIECE = 64 << 10
LARGE = [b" " * PIECE] * 16


def test_pieces_of_a_key_are_slowed_only_while_others_are_there() -> None:
    """24 bodies of 200 kB at once made others' first tokens come six times as late."""
    now = 0.0
    pace = _Pace(lambda: now)
    with pace.present(FLOOD):
        assert [pace.wait_s(FLOOD, BODY_BYTES_PER_S) for _ in range(3)] == [0.0] * 3, "alone"
        with pace.present(OTHER):
            assert pace.wait_s(FLOOD, BURST_BYTES) == 0.0, "what it sent alone is no debt"
            assert [pace.wait_s(FLOOD, BODY_BYTES_PER_S) for _ in range(3)] == [1.0, 2.0, 3.0]
            assert pace.wait_s(OTHER, 100) == 0.0
            now += 4.0
            assert pace.wait_s(FLOOD, BURST_BYTES) == 0.0
        assert pace.wait_s(FLOOD, BODY_BYTES_PER_S) == 0.0, "they have left"


class TwoKeys(Access):
    """Lets a key in for each path."""

    def identify(self, connection: HTTPConnection) -> Caller:
        return Caller(FLOOD if connection.scope["path"] == "/flood" else OTHER, "id")


class Gate:
    """Body limits of a gateway in which a piece that waits never goes on by itself."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.going = asyncio.Event()
        self.limits = BodyLimits(self._app, TwoKeys(None), len(LARGE) * PIECE, 1e6)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stays":
            await self.going.wait()
        else:
            self.answered.append(scope["path"])

    def send(self, path: str, parts: list[bytes], leaving: asyncio.Event | None = None) -> asyncio.Task[int]:
        """Sends a request; its status, or 0 where nothing refused it."""
        left = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        left[-1]["more_body"] = False

        async def receive() -> Message:
            if left:
                return left.pop(0)
            await (leaving or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def ask() -> int:
            status = [0]

            async def send(message: Message) -> None:
                status.append(message.get("status", 0))

            kind = "websocket" if path == "/stays" else "http"
            scope = {"type": kind, "path": path, "headers": [(b"transfer-encoding", b"chunked")], "state": {}}
            await self.limits(scope | ({} if kind == "websocket" else {"method": "POST"}), receive, send)
            return max(status)

        return asyncio.ensure_future(ask())


@asynccontextmanager
async def beside_a_session() -> AsyncIterator[Gate]:
    """A gate at which a session of another key is open."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(limits, "BODY_BYTES_PER_S", 1)
        patch.setattr(limits, "BURST_BYTES", 1)
        gate = Gate()
        stack.callback(gate.going.set)
        gate.send("/stays", [b""])
        await settled()
        yield gate


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_large_bodies_hold_little_and_make_room() -> None:
    """Nine of one key were held whole while they waited: everybody else got 503."""
    async with beside_a_session() as gate:
        flood = [gate.send("/flood", LARGE) for _ in range(2 * HELD_BODIES)]
        await settled()
        assert not any(one.done() for one in flood)
        held = gate.limits._held._sizes
        assert max(held.values()) <= 2 * PIECE
        small = gate.send("/flood", [b"{}"])
        assert await small == 0, "it waits for no large one of its own key"
        for one in flood:
            one.cancel()
        await asyncio.wait(flood)
        assert not held
        whole = [gate.send("/flood", [b"".join(LARGE)]) for _ in range(HELD_BODIES)]
        await settled()
        assert len(held) == HELD_BODIES, "each waits"
        assert await gate.send("/other", [json.dumps({}).encode()]) == 0
        assert await whole[0] == 408, "the oldest made room"
        for one in whole:
            one.cancel()


@pytest.mark.parametrize("parts", [LARGE[:1] + [b" "], [b"".join(LARGE)]])
async def test_a_client_that_leaves_ends_its_wait(parts: list[bytes]) -> None:
    leaving = asyncio.Event()
    async with beside_a_session() as gate:
        waiting = gate.send("/flood", parts, leaving)
        await settled()
        assert gate.limits._held._sizes
        leaving.set()
        assert await waiting == 0
        assert not gate.answered
        assert not gate.limits._held._sizes
