"""Runs one side of the overload bench: a server with one scheduler, a client, and one level of load."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimodal.bench.common.serving import metrics_page
from trimodal.bench.overload.figures import LevelFigures, summarise_level
from trimodal.bench.overload.load import Asked, run_load
from trimodal.bench.overload.machine import MemoryWatch, read_ticks, share_of_others
from trimodal.client import Client
from trimodal.client.streams.answer import AnswerStream
from trimodal.errors import ServerError
from trimodal.llm.request.terms import MAX_TTFT_DEADLINE_MS
from trimodal.llm.request.tiers import Tier
from trimodal.server.process import TritonServer

_BUSY = re.compile(r"^trimodal_llm_(?:active|queued)_requests\{[^}]*\} (\S+)$", re.MULTILINE)
_IDLE_WITHIN_S = 60.0
_LOOK_S = 0.2


@dataclass(frozen=True)
class Level:
    """One load, and all requests of it."""

    load: float
    rate: float
    seconds: float
    arrivals: Sequence[Asked]


@dataclass(frozen=True)
class Side:
    """A server with one scheduler.

    Attributes:
        tiers: whose bounds count.
        patience: seconds for a whole answer; then its client gives up.
        most_open: requests that the client may have open together.
    """

    server: TritonServer
    client: Client
    tiers: Mapping[str, Tier]
    patience: float
    most_open: int

    async def ask(self, asked: Asked) -> None:
        """One whole answer without a deadline, for a closed loop."""
        stream = self._send(asked, ttft_deadline_ms=MAX_TTFT_DEADLINE_MS)
        async for _ in stream:
            pass

    async def run(self, level: Level) -> LevelFigures:
        """One level on an idle server; it is idle again at the end. Raises ServerError: it stays busy."""
        await self._idle()
        # What is there already need not be looked at again: a collection in the middle would be a lag.
        gc.collect()
        gc.freeze()
        group = self.server.pid
        with MemoryWatch(group) as memory:
            ticks = read_ticks(group)
            results = await run_load(
                self._send, level.arrivals, patience=self.patience, most_open=self.most_open
            )
            others = share_of_others(ticks, read_ticks(group))
            await self._idle()
        return summarise_level(
            results,
            self.tiers,
            load=level.load,
            rate=level.rate,
            seconds=level.seconds,
            others=others,
            memory={"before": memory.before, "most": memory.most, "after": memory.after},
        )

    def _send(self, asked: Asked, ttft_deadline_ms: int | None = None) -> AnswerStream:
        return self.client.stream(
            asked.prompt,
            max_tokens=asked.max_tokens,
            stop=asked.stop or (),
            tier=asked.tier,
            ttft_deadline_ms=ttft_deadline_ms,
            timeout=self.patience,
        )

    async def _idle(self) -> None:
        """Until nothing runs and nothing waits."""
        for _ in range(int(_IDLE_WITHIN_S / _LOOK_S)):
            page = await asyncio.to_thread(metrics_page, self.server.metrics_url)
            busy = sum(map(float, _BUSY.findall(page)))
            if not busy:
                return
            await asyncio.sleep(_LOOK_S)
        raise ServerError(f"{busy:g} requests are still there {_IDLE_WITHIN_S:g} s after a level of load")
