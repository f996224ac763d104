"""Adapts TensorRT-LLM's LLM object to AsyncRuntime: requests, aborts and figures of both its backends.

Signatures are those of 1.2.1; nothing here was run with the library.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimodal.llm.engines.async_runtime import finish_reason, ranked, warm_up
from trimodal.llm.engines.protocol import (
    KV_BLOCK_TOKENS,
    MAX_TOP_LOGPROBS,
    EngineCall,
    EngineRequest,
    Output,
    Sampling,
)

if TYPE_CHECKING:
    from tensorrt_llm import SamplingParams
    from tensorrt_llm.llmapi.llm import BaseLLM

# Figures pass two threads that sleep 0.2 s each (executor/base_worker.py, proxy.py). A shorter wait finds
# none, and then none come until the next request: so the library's own 2 s.
_STATS_SECONDS = 2.0
_FIRST_STATS_SECONDS = 10.0
_IDLE_SECONDS = 0.25


@dataclass(frozen=True)
class KvFigures:
    """KV blocks of the GPU, as last reported."""

    total: int
    free: int
    block_tokens: int


class TensorRtLlmRuntime:
    """An opened LLM, without its tokenizer.

    Args:
        host_cache: whether blocks of host memory were asked for.
    """

    def __init__(self, llm: BaseLLM, eos_ids: list[int], *, host_cache: bool) -> None:
        self._llm = llm
        self._eos_ids = eos_ids
        self._host_cache = host_cache
        self._kv: KvFigures | None = None
        self._stats: asyncio.Task[None] | None = None

    async def begin(self, unsupported: Container[str] = ()) -> KvFigures | None:
        """Answers short prompts, then follows the library's figures; the first of them, if any come.

        Asked before the first request, TensorRT-LLM prints a complaint instead of figures.
        """
        await warm_up(self, unsupported)
        self._stats = asyncio.get_running_loop().create_task(self._follow_stats())
        deadline = time.monotonic() + _FIRST_STATS_SECONDS
        while self._kv is None and time.monotonic() < deadline and not self._stats.done():
            await asyncio.sleep(0.01)
        return self._kv

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Output, None]:
        result = self._llm.generate_async(
            request.prompt_ids,
            self._sampling_params(request.sampling),
            streaming=True,
            cache_salt=request.cache_salt or None,
        )
        made = 0
        try:
            async for update in result:
                completion = update.outputs[0]
                # The same object every time: its list grows, and loses a stop token at the end.
                tokens = list((completion.token_ids or [])[made:])
                top = request.sampling.logprobs
                given = () if top is None else completion.logprobs[made : made + len(tokens)]
                made += len(tokens)
                cached = min(update.cached_tokens, len(request.prompt_ids))
                reason = finish_reason(completion.finish_reason)
                yield Output(request.id, tokens, reason, cached, logprobs=ranked(tokens, given, top))
        finally:
            if not result.finished:
                with contextlib.suppress(Exception):  # a library that is gone holds nothing any more
                    result.abort()

    async def call(self, call: EngineCall) -> None:
        """Its engine's info names none."""

    def alive(self) -> bool:
        return bool(self._llm._check_health())  # what its own server's /health asks

    def kv_usage(self) -> float:
        return 1 - self._kv.free / self._kv.total if self._kv else 0.0

    def drafts(self) -> None:
        """Its figures of them are not read."""

    def close(self) -> None:
        self._llm.shutdown()

    def _sampling_params(self, sampling: Sampling) -> SamplingParams:
        from tensorrt_llm import SamplingParams
        from tensorrt_llm.llmapi import GuidedDecodingParams

        # Its own defaults would be 32 tokens, and one fixed seed: every unseeded answer would be the same,
        # with a sampler that reads it. The PyTorch runtime's draws for all requests from one generator.
        end, *others = self._eos_ids or [-1]
        greedy, grammar, top = sampling.temperature == 0, sampling.grammar, sampling.logprobs
        return SamplingParams(
            end_id=end,
            pad_id=max(end, 0),
            stop_token_ids=[*sampling.stop_token_ids, *([] if sampling.ignore_eos else others)] or None,
            ignore_eos=sampling.ignore_eos,
            max_tokens=sampling.max_tokens,
            temperature=None if greedy else sampling.temperature,
            top_k=1 if greedy else sampling.top_k,
            top_p=None if greedy else sampling.top_p,
            seed=None if greedy else secrets.randbits(32) if sampling.seed is None else sampling.seed,
            guided_decoding=GuidedDecodingParams(grammar=grammar) if grammar else None,
            # Of so many of the most likely, and perhaps of no other: what is drawn should be among them.
            logprobs=None if top is None else MAX_TOP_LOGPROBS,
            detokenize=False,
        )

    async def _follow_stats(self) -> None:
        while True:
            # It ends when there was no iteration for so long; after the next request there is more.
            seconds = _STATS_SECONDS if self._kv else _FIRST_STATS_SECONDS
            async for stats in self._llm.get_stats_async(timeout=seconds):
                if kv := stats.get("kvCacheStats"):
                    self._kv = self._figures(kv)
            await asyncio.sleep(_IDLE_SECONDS)

    def _figures(self, kv: dict[str, Any]) -> KvFigures:
        free, total = int(kv["freeNumBlocks"]), int(kv["maxNumBlocks"])
        if self._host_cache:
            # The maximum counts blocks of host memory as well, what is free only those of the GPU. The most
            # that were ever free (the first figures come when nothing runs) are all that the GPU has.
            total = max(free, self._kv.total if self._kv else 0)
        return KvFigures(max(total, 1), free, int(kv.get("tokensPerBlock") or KV_BLOCK_TOKENS))
