"""Generates scripted tokens at a set pace, for tests and for measuring the serving path without a model.

Batch limit, KV blocks, prefix cache and chunked prefill are those of a real engine, so that admission and
cancellation behave the same.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import get_args

from trimodal.llm.engines.budgets import fitted
from trimodal.llm.engines.prefill import PrefillShares
from trimodal.llm.engines.prefix_mirror import PrefixMirror, salted
from trimodal.llm.engines.protocol import (
    KV_BLOCK_TOKENS,
    MAX_TOP_LOGPROBS,
    CallName,
    EngineCall,
    EngineInfo,
    EngineRequest,
    EngineStats,
    Logprobs,
    Output,
)
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer

_LIMITS = {"max_num_seqs": 16, "max_num_batched_tokens": 256}


@dataclass
class _Sequence:
    request: EngineRequest
    cached: int
    prefilled: int
    made: list[int] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """Prompt tokens that are to be computed."""
        return len(self.request.prompt_ids) - self.prefilled

    @property
    def blocks(self) -> int:
        return -(-(self.prefilled + len(self.made)) // KV_BLOCK_TOKENS)


def invented_logprobs(token: int, place: int, top: int) -> Logprobs:
    """Log probabilities for tests: the token is the most likely one, the bytes after it come next."""
    chosen = -(place % 4 + 1) / 8
    return Logprobs(chosen, tuple(((token + rank) % 256, chosen - rank) for rank in range(top)))


class FakeEngine:
    """Answers every prompt with `fake_answer`, byte by byte, from an offset that its request decides."""

    def __init__(self, settings: LlmSettings) -> None:
        settings = fitted(settings)
        # 0 is what other engines choose by the machine.
        chosen = {name: value for name, value in _LIMITS.items() if not getattr(settings, name)}
        self._settings = settings.model_copy(update=chosen)
        self._script = ByteTokenizer().encode(settings.fake_answer)
        self._waiting: deque[_Sequence] = deque()
        self._running: dict[int, _Sequence] = {}
        self._shares = PrefillShares(1)
        self._prefix = PrefixMirror(settings.num_kv_blocks, KV_BLOCK_TOKENS)
        self._stats = EngineStats()
        self._steps = 0
        self._called: list[Output] = []

    @property
    def info(self) -> EngineInfo:
        s = self._settings
        return EngineInfo(
            "fake", s.num_kv_blocks, KV_BLOCK_TOKENS, s.max_num_seqs, 1 << 20, vocab_size=256,
            max_top_logprobs=MAX_TOP_LOGPROBS, max_num_batched_tokens=s.max_num_batched_tokens,
            shortest_first=True, unsupported=dict.fromkeys(("grammar", "logit_bias"), "it has no model"),
            calls=frozenset(get_args(CallName)),
        )  # fmt: skip

    def add(self, request: EngineRequest) -> None:
        caching = self._settings.enable_prefix_caching
        ids = salted(request.prompt_ids, request.cache_salt, request.public_tokens)
        cached = self._prefix.add(request.id, ids) if caching else 0
        self._waiting.append(_Sequence(request, cached, prefilled=cached))

    def call(self, call: EngineCall) -> None:
        self._called.append(Output(call.id, [], "stop"))

    def cancel(self, id: int) -> None:
        self._running.pop(id, None)
        self._waiting = deque(s for s in self._waiting if s.request.id != id)
        self._prefix.drop(id)

    def has_work(self) -> bool:
        return bool(self._running or self._waiting or self._called)

    def step(self) -> list[Output]:
        settings = self._settings
        began = time.monotonic()
        while self._waiting and len(self._running) < settings.max_num_seqs:
            sequence = self._waiting.popleft()
            self._running[sequence.request.id] = sequence
        running = list(self._running.values())
        decoding = [one for one in running if not one.remaining]
        prompts = [one for one in running if one.remaining]
        outputs = [*self._called, *(self._advance(one) for one in decoding)]
        self._called.clear()
        decoded = len(decoding)
        budget = settings.max_num_batched_tokens - decoded
        given = self._shares.share([one.remaining for one in prompts], budget)
        prefill = sum(given)
        for one, tokens in zip(prompts, given, strict=True):
            one.prefilled += tokens
            self._prefix.prefilled(one.request.id, one.prefilled)
            if not one.remaining:
                outputs.append(self._advance(one))
        takes = settings.fake_step_ms / 1e3 + prefill * settings.fake_prefill_us / 1e6
        time.sleep(max(0.0, takes - (time.monotonic() - began)))
        self._steps += 1
        if self._steps == settings.fake_crash_after:
            os._exit(9)
        self._stats = replace(
            self._stats,
            decode_slots=self._stats.decode_slots + decoded,
            decoded_tokens=self._stats.decoded_tokens + decoded,
        )
        return outputs

    def _advance(self, sequence: _Sequence) -> Output:
        request = sequence.request
        offset = sum(request.prompt_ids) + len(sequence.made)
        if request.adapter:  # never by the whole script: it would answer as the model alone does
            offset += 1 + sum(request.adapter.path.encode()) % max(1, len(self._script) - 1)
        token = self._script[offset % len(self._script)]
        sequence.made.append(token)
        sampling = request.sampling
        finish = "length" if len(sequence.made) >= sampling.max_tokens else None
        if token in sampling.stop_token_ids and len(sequence.made) > sampling.min_tokens:
            finish = "stop"
        if finish:
            del self._running[request.id]
            self._prefix.finish(request.id, sequence.made)
        top, of_prompt = sampling.logprobs, sampling.prompt_logprobs
        logprobs = () if top is None else (invented_logprobs(token, len(sequence.made), top),)
        prompt: tuple[Logprobs | None, ...] = ()
        if of_prompt is not None and len(sequence.made) == 1:
            later = enumerate(request.prompt_ids[1:], 1)
            prompt = (None, *(invented_logprobs(id, place, of_prompt) for place, id in later))
        return Output(request.id, [token], finish, sequence.cached, logprobs=logprobs, prompt_logprobs=prompt)

    def watch(self, descriptor: int) -> None:
        """Its steps compute."""

    def stats(self) -> EngineStats:
        used = sum(sequence.blocks for sequence in self._running.values())
        return replace(self._stats, kv_usage=min(1.0, used / self._settings.num_kv_blocks))

    def check(self) -> None:
        """A script cannot be lost."""

    def close(self) -> None:
        self._running.clear()
        self._waiting.clear()
