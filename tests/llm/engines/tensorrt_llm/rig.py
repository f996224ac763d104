"""TensorRT-LLM as its stubs declare it, with requests that the test plays; and artefacts that fit it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.doubles.gpu_libraries import Call, Recorder, make
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import Manifest, write_manifest
from trimodal.runtimes.gpu_device import Gpu

H100 = Gpu(0, "NVIDIA H100 80GB HBM3", "9.0", 80 << 30, 79 << 30, "580.65")
KV = {"maxNumBlocks": 1000, "freeNumBlocks": 750, "usedNumBlocks": 250, "tokensPerBlock": 32}
WARM_UP = [1] * 8


def artefact(directory: Path, runtime: str = "checkpoint", **changes: Any) -> Path:
    """A directory with a manifest as the build scripts write it, and what the service reads beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    values: dict[str, Any] = {
        "task": "llm",
        "runtime": runtime,
        "runtime_version": "5.5.4",
        "precision": "fp8",
        "source": "tiny",
        "source_sha256": "ab" * 32,
        "command": "python build/llm_place.py tiny",
        "shapes": {"max_position_embeddings": 4096, "vocab_size": 512},
        "extra": {"eos_token_ids": [2, 3]},
    }
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(values.get(key), dict) else value
    write_manifest(directory, Manifest(**values))
    return directory


class PlayedLlm:
    """Plays the requests of a double: `say(prompt's first id, tokens, …)` from any thread, in its order."""

    def __init__(self, double: SimpleNamespace) -> None:
        self.recorder: Recorder = double.recorder
        self.healthy = True
        self.kv: dict[str, int] | None = dict(KV)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.threads: set[int] = set()
        self._lines: dict[int, asyncio.Queue[Any]] = {}
        self._outputs: dict[int, Any] = {}
        self._done: set[int] = set()
        from tensorrt_llm.executor import CompletionOutput

        self._completion = CompletionOutput
        returns = self.recorder.returns
        returns("RequestOutput.__aiter__", self._play)
        returns("RequestOutput.outputs", lambda instance: [self._outputs[id(instance)]])
        returns("RequestOutput.finished", lambda instance: id(instance) in self._done)
        returns("IterationResult.__aiter__", self._stats)
        returns("_check_health", lambda instance: self.healthy)

    def say(
        self, first: int, tokens: list[int] | BaseException, reason: str | None = None, **more: Any
    ) -> None:
        """Next of the request whose prompt begins with `first`; `more`: attributes of it or of its output."""
        assert self.loop
        self.loop.call_soon_threadsafe(self._line(first).put_nowait, (tokens, reason, more))

    def prompts(self) -> list[list[int]]:
        """Prompts that were handed over, the warm-up's left out."""
        return [call.arguments["inputs"] for call in self._requests() if call.arguments["inputs"] != WARM_UP]  # type: ignore[misc]

    def aborted(self) -> list[int]:
        """First ids of the prompts whose requests were aborted."""
        return [self._prompt(call.instance)[0] for call in self.recorder.named("RequestOutput.abort")]

    def _requests(self) -> list[Call]:
        return self.recorder.named("BaseLLM.generate_async")

    def _prompt(self, instance: object) -> list[int]:
        (call,) = [call for call in self._requests() if call.result is instance]
        prompt: Any = call.arguments["inputs"]
        return list(prompt)

    def _line(self, first: int) -> asyncio.Queue[Any]:
        return self._lines.setdefault(first, asyncio.Queue())

    async def _play(self, instance: Any) -> AsyncIterator[Any]:
        """Gives the request itself every time, its list of tokens grown, as the library does."""
        from tensorrt_llm.executor.result import Logprob

        self.loop = asyncio.get_running_loop()
        self.threads.add(threading.get_ident())
        prompt = self._prompt(instance)
        made: list[int] = []
        output = self._outputs[id(instance)] = make(self._completion, index=0, token_ids=made)
        instance.cached_tokens = 0
        while True:
            first = [4], "length", {"logprobs": [{4: make(Logprob, logprob=-1.0, rank=1)}]}
            tokens, reason, more = first if prompt == WARM_UP else await self._next(prompt)
            if isinstance(tokens, BaseException):
                raise tokens
            made += tokens
            output.token_ids, output.finish_reason = list(made), reason
            for name, value in more.items():
                setattr(instance if hasattr(instance, name) else output, name, value)
            if reason:
                self._done.add(id(instance))
            yield instance
            if reason:
                return

    async def _next(self, prompt: list[int]) -> Any:
        return await self._line(prompt[0]).get()

    async def _stats(self, instance: object) -> AsyncIterator[dict[str, Any]]:
        for _ in range(3):
            await asyncio.sleep(0.005)
            if self.kv is not None:
                yield {"numActiveRequests": 1, "kvCacheStats": dict(self.kv)}


def settings(directory: Path, **changes: Any) -> LlmSettings:
    made = artefact(directory / "checkpoint")
    values = {"engine": "tensorrt_llm_pytorch", "artefact": str(made), "max_num_seqs": 4}
    return LlmSettings.model_validate(values | changes)


def ask(id: int, first: int, **sampling: Any) -> EngineRequest:
    return EngineRequest(id, [first, 7, 7], Sampling(**({"max_tokens": 20} | sampling)))
