"""Asks all the time, in all modalities, and keeps what became of each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import httpx

from tests.chaos.operations import HUNG_S, KINDS, Clients, RefusedByGateway
from trimodal.client.errors import Timeout
from trimodal.errors import TrimodalError

# Clients of each kind: some 60 requests under way or pausing, about half of two cores.
STEADY = {"text": 4, "chat": 3, "picture": 2, "speech": 2, "assistant": 2, "embedding": 1}
PAUSE_S = 0.05
What = Literal["right", "told", "wrong", "hung"]


@dataclass(frozen=True)
class Outcome:
    """One request: times are of the monotonic clock, `error` is how it was told."""

    kind: str
    began: float
    ended: float
    what: What
    error: str = ""


@dataclass
class Load:
    """Closed loops of clients; `learn` before `start`, while nothing is wrong yet."""

    clients: Clients
    each: Mapping[str, int] = field(default_factory=lambda: STEADY)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._right: dict[str, object] = {}
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def learn(self) -> None:
        """Asks each kind once; that is what is right from now on."""
        for kind in self.each:
            self._right[kind] = await asyncio.wait_for(KINDS[kind](self.clients), HUNG_S)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._ask_on(kind)) for kind, count in self.each.items() for _ in range(count)
        ]

    async def stop(self) -> None:
        """Lets what is under way end."""
        self._over = True
        await asyncio.gather(*self._tasks)

    def under_way(self) -> int:
        return sum(not task.done() for task in self._tasks)

    async def _ask_on(self, kind: str) -> None:
        while not self._over:
            outcome = await self.once(kind)
            self.outcomes.append(outcome)
            await asyncio.sleep(PAUSE_S if outcome.what == "right" else 4 * PAUSE_S)

    async def once(self, kind: str) -> Outcome:
        """Asks one thing."""
        began = time.monotonic()
        what: What = "told"
        error = ""
        try:
            answer = await asyncio.wait_for(KINDS[kind](self.clients), HUNG_S + 2.0)
            what = "right" if answer == self._right[kind] else "wrong"
            error = "" if what == "right" else f"{answer!r:.200}"
        except (Timeout, asyncio.TimeoutError, httpx.TimeoutException) as found:
            what, error = "hung", f"{type(found).__name__}: {found}"
        except (TrimodalError, RefusedByGateway, httpx.HTTPError) as found:
            error = f"{type(found).__name__}: {found}"
        return Outcome(kind, began, time.monotonic(), what, error)
