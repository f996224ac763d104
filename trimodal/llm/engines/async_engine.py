"""Adapts an asyncio library to the synchronous engine Protocol: one task a sequence, one queue of outputs.

The library's event loop runs all the time, on a thread of its own. To run it only during
`step()` would lose tokens for good: TensorRT-LLM's result thread does not wake a loop that
is not running at that moment. The library's own calls are in its `AsyncRuntime`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import select
import threading
import time
from contextlib import aclosing
from dataclasses import dataclass, replace

from trimodal.errors import last_line
from trimodal.llm.engines.async_runtime import AsyncRuntime, LoopThread, Refused
from trimodal.llm.engines.protocol import (
    EngineCall,
    EngineInfo,
    EngineLost,
    EngineRequest,
    EngineStats,
    Output,
    Sampling,
)

logger = logging.getLogger(__name__)

_STEP_SECONDS = 0.002  # how long a step waits for an output, unless something else would end its wait
_ALIVE_SECONDS = 0.5
_CLOSE_SECONDS = 8.0


@dataclass
class _Sequence:
    """One sequence on its way; `dropped` once no tokens of it are wanted any more."""

    request: EngineRequest
    task: asyncio.Task[None] | None = None
    dropped: bool = False
    cached_tokens: int = 0
    begun: bool = False


class AsyncEngine:
    """The Engine Protocol over an AsyncRuntime: owned by one thread, and only its queue is the loop's too.

    `loop`, where the runtime lives, is closed with it.
    """

    def __init__(self, loop: LoopThread, runtime: AsyncRuntime, info: EngineInfo) -> None:
        self.info = info
        self._loop = loop
        self._runtime = runtime
        self._sequences: dict[int, _Sequence] = {}
        self._outputs: queue.SimpleQueue[tuple[_Sequence, Output] | EngineLost] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # readable: there are outputs
        self._waiting = select.poll()
        self._waiting.register(self._bell, select.POLLIN)
        self._watches = False
        self._lost: EngineLost | None = None
        self._stats = EngineStats(speculating=info.lookahead > 0)
        self._asked = time.monotonic()  # whether the runtime is alive
        self._closed = False

    def add(self, request: EngineRequest) -> None:
        total = len(request.prompt_ids) + request.sampling.max_tokens
        if total > self.info.max_model_len:
            raise ValueError(f"{total} tokens, and the engine takes {self.info.max_model_len}")
        sequence = self._sequences[request.id] = _Sequence(request)
        self._loop.loop.call_soon_threadsafe(self._begin, sequence)

    def call(self, call: EngineCall) -> None:
        nothing = EngineRequest(call.id, [], Sampling(max_tokens=1))
        sequence = self._sequences[call.id] = _Sequence(nothing)
        self._loop.loop.call_soon_threadsafe(self._begin, sequence, call)

    def cancel(self, id: int) -> None:
        if sequence := self._sequences.pop(id, None):
            sequence.dropped = True
            self._loop.loop.call_soon_threadsafe(self._drop, sequence)

    def has_work(self) -> bool:
        return bool(self._sequences)

    def step(self) -> list[Output]:
        if self._lost:
            raise self._lost
        # To look every 2 ms would wake this process 500 times a second, where cores compute the next tokens.
        self._waiting.poll(1e3 * (_ALIVE_SECONDS if self._watches else _STEP_SECONDS))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        outputs: list[Output] = []
        with contextlib.suppress(queue.Empty):
            while not self._lost:
                item = self._outputs.get_nowait()
                if isinstance(item, EngineLost):
                    self._lost = item
                elif output := self._take(*item):
                    outputs.append(output)
        if self._lost and not outputs:  # else what it made before is told first
            raise self._lost
        if not outputs and time.monotonic() - self._asked > _ALIVE_SECONDS:
            self._asked = time.monotonic()
            self.check()
        return outputs

    def watch(self, descriptor: int) -> None:
        self._waiting.register(descriptor, select.POLLIN)
        self._watches = True

    def stats(self) -> EngineStats:
        usage = round(self._runtime.kv_usage(), 4) if self._sequences else 0.0
        if not (drafts := self._runtime.drafts()):
            return replace(self._stats, kv_usage=usage)
        drafted, accepted = drafts
        # Each token that was not drafted took a step; outputs say nothing, the library joins them under load.
        slots = max(0, self._stats.decoded_tokens - accepted)
        return replace(
            self._stats, kv_usage=usage, decode_slots=slots, drafted_tokens=drafted, accepted_tokens=accepted
        )

    def check(self) -> None:
        if not self._runtime.alive():
            raise EngineLost(f"{self.info.name} has ended")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._sequences.clear()
        ending = threading.Thread(target=self._loop.close, args=(self._runtime,), name="llm-end", daemon=True)
        ending.start()
        ending.join(_CLOSE_SECONDS)  # one that hangs ends with its process
        if not ending.is_alive():
            os.close(self._bell)

    def _begin(self, sequence: _Sequence, call: EngineCall | None = None) -> None:
        if not sequence.dropped:
            work = self._perform(sequence, call) if call else self._follow(sequence)
            sequence.task = self._loop.loop.create_task(work)

    def _drop(self, sequence: _Sequence) -> None:
        if sequence.task:
            sequence.task.cancel()

    async def _follow(self, sequence: _Sequence) -> None:
        """Runs one sequence to its end, which is always an output that finishes or an engine that is lost."""
        id = sequence.request.id
        problem, reason, ended = "the engine failed on this request", "error", False
        try:
            async with aclosing(self._runtime.stream(sequence.request)) as outputs:
                # Read to its own end: closed after its last output, a stream would abort what is finished.
                async for output in outputs:
                    error = problem if output.finish_reason == "error" else ""
                    self._put((sequence, replace(output, error=error)))
                    ended = ended or output.finish_reason is not None
            problem = "the engine ended this request before its end"
        except Refused as error:
            problem, reason = f"the engine refused this request: {error}", "refused"
            logger.warning("%s refused a sequence: %s", self.info.name, error, extra={"request_id": id})
        except Exception as error:
            if not self._runtime.alive():
                self._put(EngineLost(f"{self.info.name} ended during a request: {error}"))
                return
            logger.exception("%s failed on a sequence", self.info.name, extra={"request_id": id})
        if not ended:
            self._put((sequence, Output(id, [], reason, error=problem)))

    def _put(self, item: tuple[_Sequence, Output] | EngineLost) -> None:
        self._outputs.put(item)
        os.eventfd_write(self._bell, 1)

    async def _perform(self, sequence: _Sequence, call: EngineCall) -> None:
        """Does what an operator wants; its end is an output, too."""
        problem = ""
        try:
            await self._runtime.call(call)
        except Exception as error:
            logger.warning("%s: %s failed", self.info.name, call.name, exc_info=True)
            problem = last_line(error)
        self._put((sequence, Output(call.id, [], "error" if problem else "stop", error=problem)))

    def _take(self, sequence: _Sequence, output: Output) -> Output | None:
        if sequence.dropped:
            return None
        if output.finish_reason:
            sequence.dropped = True  # nothing follows a last output
            self._sequences.pop(output.id, None)
        # Some outputs do not report cached tokens: keep what was known.
        sequence.cached_tokens = max(sequence.cached_tokens, output.cached_tokens)
        if output.token_ids:
            if sequence.begun:  # the first tokens come out of the prompt's computation
                stats, tokens = self._stats, len(output.token_ids)
                slots, decoded = stats.decode_slots + 1, stats.decoded_tokens + tokens
                self._stats = replace(stats, decode_slots=slots, decoded_tokens=decoded)
            sequence.begun = True
        elif not output.finish_reason:
            return None
        return replace(output, cached_tokens=sequence.cached_tokens)
