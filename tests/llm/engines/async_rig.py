"""A library that a test plays itself, behind AsyncEngine: its streams say what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.llm.engine_core.rig import Loop
from trimodal.llm.engines.async_engine import AsyncEngine
from trimodal.llm.engines.async_runtime import LoopThread
from trimodal.llm.engines.protocol import EngineCall, EngineInfo, EngineRequest, EngineStats, Output, Sampling

Chunk = partial(Output, 0)  # the runtime puts the sequence's id in
INFO = EngineInfo("played", 64, 32, 4, 1000)
Stream = Callable[[EngineRequest], AsyncGenerator[Output, None]]


class PlayedRuntime:
    """An AsyncRuntime whose streams the test pushes: `say(id, …)` from any thread, in its order."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.dead = False
        self.closed = False
        self.usage = 0.5
        self.drafted: tuple[int, int] | None = None
        self.aborted: list[int] = []
        self.requests: list[EngineRequest] = []
        self.ended: list[int] = []
        self._lines: dict[int, asyncio.Queue[Output | BaseException | None]] = {}

    def say(self, id: int, *items: Output | BaseException | None) -> None:
        """What the stream of `id` gives next: chunks, an exception that it raises, None for its end."""

        async def put() -> None:
            for item in items:
                self._line(id).put_nowait(item)

        self.loop.run(put(), 5)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Output, None]:
        self.requests.append(request)
        finished = False
        try:
            while not finished:
                item = await self._line(request.id).get()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                finished = item.finish_reason is not None
                yield replace(item, id=request.id)
        finally:
            del self._lines[request.id]
            if not finished:
                self.aborted.append(request.id)
            self.ended.append(request.id)

    async def call(self, call: EngineCall) -> None:
        """There is nothing to do."""

    def alive(self) -> bool:
        return not self.dead

    def kv_usage(self) -> float:
        return self.usage

    def drafts(self) -> tuple[int, int] | None:
        return self.drafted

    def close(self) -> None:
        self.closed = True

    def _line(self, id: int) -> asyncio.Queue[Any]:
        return self._lines.setdefault(id, asyncio.Queue())


def engine_of(runtime: PlayedRuntime, info: EngineInfo = INFO) -> AsyncEngine:
    return AsyncEngine(runtime.loop, runtime, info)


def request(id: int, max_tokens: int = 20, prompt: int = 10) -> EngineRequest:
    return EngineRequest(id, [7] * prompt, Sampling(max_tokens))


class Rig(Loop):
    """An engine whose library the test plays."""

    def __init__(self) -> None:
        self.runtime = PlayedRuntime()
        super().__init__(engine_of(self.runtime))

    def ends(self, id: int) -> str | None:
        return next((output.finish_reason for output in self.outputs(id) if output.finish_reason), None)

    @property
    def stats(self) -> EngineStats:
        return self.steps[-1].stats
