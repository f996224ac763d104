"""Runs one side of the overload bench: a server with one scheduler, a client, and one level of load."""

from __future__ import annotations

import asyncio
import gc
import http.client
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from trimodal.bench.overload.figures import LevelFigures, summarise_level
from trimodal.bench.overload.load import Asked, run_load
from trimodal.bench.overload.machine import MemoryWatch, OthersWatch
from trimodal.client import Client
from trimodal.client.streams.answer import AnswerStream
from trimodal.errors import ServerError
from trimodal.llm.request.terms import MAX_TTFT_DEADLINE_MS
from trimodal.llm.request.tiers import Tier
from trimodal.server.options import ServerOptions
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


class Side:
    """`async with Side(options, tiers, …) as side: await side.run(level)`.

    Args:
        tiers: whose bounds count.
        patience: seconds for a whole answer; then its client gives up.
        most_open: requests that the client may have open together.
        connections: HTTP/2 connections of the client.
    """

    def __init__(
        self,
        options: ServerOptions,
        tiers: Mapping[str, Tier],
        *,
        patience: float,
        most_open: int,
        connections: int = 4,
    ) -> None:
        self._server = TritonServer(options)
        self._tiers = tiers
        self._patience = patience
        self._most_open = most_open
        self._connections = connections
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Side:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._server)
            self._client = await stack.enter_async_context(
                Client(self._server.grpc_url, connections=self._connections)
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ask(self, asked: Asked) -> None:
        """One whole answer without a deadline, for a closed loop."""
        stream = self._send(asked, ttft_deadline_ms=MAX_TTFT_DEADLINE_MS)
        async for _ in stream:
            pass

    async def run(self, level: Level) -> LevelFigures:
        """One level on an idle server; it is idle again at the end.

        Raises:
            ServerError: it stays busy.
        """
        await self._idle()
        # What is there already need not be looked at again: a collection in the middle would be a lag.
        gc.collect()
        gc.freeze()
        with MemoryWatch(self._server.pid) as memory:
            with OthersWatch(self._server.pid) as others:
                results = await run_load(
                    self._send, level.arrivals, patience=self._patience, most_open=self._most_open
                )
            await self._idle()
        return summarise_level(
            results,
            self._tiers,
            load=level.load,
            rate=level.rate,
            seconds=level.seconds,
            others=others.share,
            memory={"before": memory.before, "most": memory.most, "after": memory.after},
        )

    def _send(self, asked: Asked, ttft_deadline_ms: int | None = None) -> AnswerStream:
        return self._client.stream(
            asked.prompt,
            max_tokens=asked.max_tokens,
            stop=asked.stop or (),
            tier=asked.tier,
            ttft_deadline_ms=ttft_deadline_ms,
            timeout=self._patience,
        )

    async def _idle(self) -> None:
        """Until nothing runs and nothing waits."""
        for _ in range(int(_IDLE_WITHIN_S / _LOOK_S)):
            busy = await asyncio.to_thread(self._busy)
            if not busy:
                return
            await asyncio.sleep(_LOOK_S)
        raise ServerError(f"{busy:g} requests are still there {_IDLE_WITHIN_S:g} s after a level of load")

    def _busy(self) -> float:
        connection = http.client.HTTPConnection(self._server.metrics_url, timeout=10.0)
        try:
            connection.request("GET", "/metrics")
            return sum(map(float, _BUSY.findall(connection.getresponse().read().decode())))
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the metrics page does not answer: {error}") from None
        finally:
            connection.close()
