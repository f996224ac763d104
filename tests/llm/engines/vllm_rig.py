"""vLLM as its wheel's signatures declare it (tests/typings/vllm-0.33), with requests that the test plays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.doubles.gpu_libraries import Recorder, install, make
from tests.llm.engines.tensorrt_llm.rig import WARM_UP


class PlayedVllm:
    """AsyncLLM whose requests the test plays; its figures go to the logger that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorder = Recorder()
        install(monkeypatch, "vllm-0.33", self.recorder)
        from vllm.config import CacheConfig, ModelConfig, VllmConfig
        from vllm.outputs import CompletionOutput, RequestOutput

        self._classes = CompletionOutput, RequestOutput
        self.cache = make(CacheConfig, block_size=16, num_gpu_blocks=500, kv_cache_size_tokens=None)
        model = make(ModelConfig, max_model_len=4096)
        self.config = make(VllmConfig, model_config=model, cache_config=self.cache)
        self.dead = False
        self.aborted: list[str] = []
        self.threads: set[str] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lines: dict[str, asyncio.Queue[Any]] = {}
        self.recorder.returns("AsyncLLM.vllm_config", lambda instance: self._completed())
        self.recorder.returns("AsyncLLM.errored", lambda instance: self.dead)
        self.recorder.returns("AsyncLLM.generate", self._play)

    def say(
        self,
        id: int,
        tokens: list[int] | BaseException,
        reason: str | None = None,
        cached: int = 0,
        logprobs: Any = None,
    ) -> None:
        """What request `id` gives next, from any thread."""
        assert self.loop
        self.loop.call_soon_threadsafe(self._line(str(id)).put_nowait, (tokens, reason, cached, logprobs))

    def report(self, usage: float, drafted: int = 0, accepted: int = 0) -> None:
        """A step's figures, to every logger that was made."""
        from vllm.v1.metrics.stats import SchedulerStats
        from vllm.v1.spec_decode.metrics import SpecDecodingStats

        drafts = SpecDecodingStats(4, 1, drafted, accepted) if drafted else None
        figures = SchedulerStats(kv_cache_usage=usage, spec_decoding_stats=drafts)
        for one in self.loggers:
            one.record(None, None)
            one.record(figures, None, mm_cache_stats=None, engine_idx=0)

    def opened(self) -> dict[str, Any]:
        (call,) = self.recorder.named("AsyncEngineArgs")
        return dict(call.arguments)

    def requests(self) -> list[Any]:
        calls: list[Any] = [call.arguments for call in self.recorder.named("generate")]
        return [call for call in calls if call["prompt"]["prompt_token_ids"] != WARM_UP]

    def make_loggers(self) -> None:
        (call,) = self.recorder.named("from_engine_args")
        factories: Any = call.arguments["stat_loggers"]
        self.loggers = [factory(self.config, 0) for factory in factories]

    def _completed(self) -> Any:
        """The configuration as vLLM makes it of its arguments."""
        from vllm.config import SpeculativeConfig

        given: Any = self.recorder.named("AsyncEngineArgs")[-1].arguments.get("speculative_config")
        tokens = given and given["num_speculative_tokens"]
        self.config.speculative_config = given and make(SpeculativeConfig, num_speculative_tokens=tokens)
        return self.config

    def _line(self, id: str) -> asyncio.Queue[Any]:
        return self._lines.setdefault(id, asyncio.Queue())

    async def _play(
        self, instance: object, prompt: Any, sampling_params: Any, request_id: str, lora_request: Any = None
    ) -> AsyncGenerator[Any, None]:
        from vllm.logprobs import Logprob

        self.loop = asyncio.get_running_loop()
        self.threads.add(threading.current_thread().name)
        completion, output = self._classes
        finished = False
        try:
            while not finished:
                warm = prompt["prompt_token_ids"] == WARM_UP
                said = None if sampling_params.logprobs is None else [{4: Logprob(-1.0, 1)}]
                first = [4], "length", 0, said
                tokens, reason, cached, logprobs = first if warm else await self._line(request_id).get()
                if isinstance(tokens, BaseException):
                    raise tokens
                finished = reason is not None
                made = make(completion, token_ids=tokens, finish_reason=reason, logprobs=logprobs)
                yield make(
                    output, outputs=[made], finished=finished, num_cached_tokens=cached, prompt_logprobs=None
                )
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.append(request_id)
            raise
