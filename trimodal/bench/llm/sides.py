"""Runs the two sides of the llm bench: the served model over gRPC, and its engine alone.

Both run the engine in a process of its own with the same settings; the bare side's
tokens arrive over the same pipe that the service reads.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence

from trimodal.bench.common.samples import Round, Sample
from trimodal.client import Client
from trimodal.llm.engine_core.client import start_process
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engines.protocol import EngineRequest, EngineStats, Sampling
from trimodal.llm.settings import LlmSettings

_LIMIT_S = 600.0


class BareEngine:
    """The engine's process, driven directly."""

    def __init__(self, settings: LlmSettings) -> None:
        self._client = start_process(settings)
        self._steps: queue.SimpleQueue[tuple[float, Stepped] | None] = queue.SimpleQueue()
        threading.Thread(target=self._receive, name="bench-engine", daemon=True).start()
        self._next = 0
        self.stats = EngineStats()

    def __enter__(self) -> BareEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self, prompts: Sequence[list[int]], max_tokens: int) -> tuple[Round, list[list[int]]]:
        """All prompts at once, greedily; the round and the token ids of each answer."""
        ids = range(self._next, self._next + len(prompts))
        self._next += len(prompts)
        answers: dict[int, list[int]] = {id: [] for id in ids}
        times: dict[int, list[float]] = {id: [] for id in ids}
        open_ids = set(ids)
        began = time.perf_counter()
        for id, prompt in zip(ids, prompts, strict=True):
            self._client.add(EngineRequest(id, prompt, Sampling(max_tokens)))
        while open_ids:
            item = self._steps.get(timeout=_LIMIT_S)
            if item is None:
                raise RuntimeError("the bare engine's process died")
            at, stepped = item
            self.stats = stepped.stats
            for output in stepped.outputs:
                if output.id not in open_ids:
                    continue
                if output.finish_reason == "error":
                    raise RuntimeError(output.error)
                answers[output.id] += output.token_ids
                if output.token_ids:
                    times[output.id].append(at)
                if output.finish_reason:
                    open_ids.discard(output.id)
        seconds = time.perf_counter() - began
        samples = tuple(_sample(began, times[id], len(answers[id])) for id in ids)
        return Round(samples, seconds), [answers[id] for id in ids]

    def _receive(self) -> None:
        while stepped := self._client.receive():
            self._steps.put((time.perf_counter(), stepped))
        self._steps.put(None)


def _sample(began: float, times: list[float], tokens: int) -> Sample:
    gaps = tuple(later - earlier for earlier, later in zip(times, times[1:], strict=False))
    return Sample(times[0] - began, gaps, tokens)


async def run_served(client: Client, prompts: Sequence[str], max_tokens: int) -> tuple[Round, list[str]]:
    """All prompts at once through the server, greedily; the round and the texts."""
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(client.complete(prompt, max_tokens=max_tokens, timeout=_LIMIT_S) for prompt in prompts)
    )
    seconds = time.perf_counter() - began
    samples = tuple(
        Sample(answer.timing.ttft or seconds, answer.timing.itl, answer.usage.completion)
        for answer in answers
    )
    return Round(samples, seconds), [answer.text for answer in answers]
