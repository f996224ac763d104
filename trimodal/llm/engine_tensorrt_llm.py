"""Opens TensorRT-LLM behind the engine Protocol: its compiled engines, or checkpoints by its PyTorch runtime.

Signatures are those of 1.2.1; nothing here was run with the library. How requests run is
in tensorrt_llm_runtime.py, how they become steps in async_engine.py. It compiles nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimodal.errors import ArtefactError
from trimodal.gpu.fit import check_version
from trimodal.llm import gpu_artefact
from trimodal.llm.async_engine import AsyncEngine
from trimodal.llm.engine import Engine, EngineInfo
from trimodal.llm.gpu_artefact import GpuArtefact
from trimodal.llm.loop_thread import LoopThread
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tensorrt_llm_runtime import TensorRtLlmRuntime, first_figures

if TYPE_CHECKING:
    from tensorrt_llm.llmapi import KvCacheConfig, LookaheadDecodingConfig, SchedulerConfig
    from tensorrt_llm.llmapi.llm import BaseLLM


def open_compiled(settings: LlmSettings) -> Engine:
    """An engine directory of build/llm_tensorrt_llm.py, by the runtime that it was compiled for.

    Raises:
        OperatorError: the artefact is missing or does not fit this machine or these settings.
    """
    artefact = gpu_artefact.compiled(settings)
    drafted = _check_lookahead(settings, artefact)
    import tensorrt_llm

    check_version(artefact.directory, artefact.manifest, tensorrt_llm.__version__)
    from tensorrt_llm._tensorrt_engine import LLM

    llm = LLM(
        model=str(artefact.directory),
        skip_tokenizer_init=True,
        kv_cache_config=_kv_cache_config(settings, artefact),
        enable_chunked_prefill=settings.enable_chunked_prefill,
        scheduler_config=_scheduler_config(settings),
        speculative_config=_lookahead_config(settings),
        max_batch_size=settings.max_num_seqs,
        max_num_tokens=settings.max_num_batched_tokens,
    )
    return _follow(settings, artefact, llm, drafted=drafted)


def open_pytorch(settings: LlmSettings) -> Engine:
    """A checkpoint of build/llm_place.py, by the library's PyTorch runtime; later releases have no other.

    Raises:
        OperatorError: the artefact is missing or another one, or GPUs are.
    """
    artefact = gpu_artefact.checkpoint(settings)
    from tensorrt_llm import LLM

    llm = LLM(
        model=str(artefact.directory),
        skip_tokenizer_init=True,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        kv_cache_config=_kv_cache_config(settings, artefact),
        enable_chunked_prefill=settings.enable_chunked_prefill,
        scheduler_config=_scheduler_config(settings),
        max_batch_size=settings.max_num_seqs,
        max_num_tokens=settings.max_num_batched_tokens,
        max_seq_len=artefact.max_model_len,
        enable_iter_perf_stats=True,  # KV figures; off by default on this backend
    )
    return _follow(settings, artefact, llm, drafted=0)


def lookahead_tokens(window: int, ngram: int, verification: int) -> int:
    """Tokens that lookahead decoding drafts in a step at most; an engine is built for no more."""
    return max(0, ngram - 2) + (window - 1 + verification) * (ngram - 1)


def _follow(settings: LlmSettings, artefact: GpuArtefact, llm: BaseLLM, *, drafted: int) -> Engine:
    """The opened library, warm, with its KV pool's size known."""
    import tensorrt_llm

    runtime = TensorRtLlmRuntime(
        llm,
        artefact.eos_ids,
        host_cache=settings.host_cache_bytes > 0,
        reused_blocks=settings.engine == "tensorrt_llm" and settings.enable_prefix_caching,
    )
    loop = LoopThread()
    try:
        kv = first_figures(loop.run(runtime.begin()), settings.num_kv_blocks, artefact.block_tokens)
    except BaseException:
        loop.cancel_tasks()
        runtime.close()
        loop.close()
        raise
    info = EngineInfo(
        name=settings.engine,
        precision=artefact.manifest.precision,
        num_kv_blocks=kv.total,
        block_tokens=kv.block_tokens,
        max_num_seqs=settings.max_num_seqs,
        max_model_len=artefact.max_model_len,
        lookahead=drafted,
        extra=artefact.facts("tensorrt_llm", tensorrt_llm.__version__),
    )
    return AsyncEngine(loop, runtime, info, settings.stall_timeout_s)


def _kv_cache_config(settings: LlmSettings, artefact: GpuArtefact) -> KvCacheConfig:
    from tensorrt_llm.llmapi import KvCacheConfig

    return KvCacheConfig(
        enable_block_reuse=settings.enable_prefix_caching,
        free_gpu_memory_fraction=settings.kv_cache_free_gpu_memory_fraction,
        host_cache_size=settings.host_cache_bytes or None,
        max_tokens=settings.num_kv_blocks * artefact.block_tokens or None,
        dtype=settings.kv_cache_dtype,  # "auto" for a compiled engine: it was built with one
    )


def _scheduler_config(settings: LlmSettings) -> SchedulerConfig:
    from tensorrt_llm.llmapi import CapacitySchedulerPolicy, SchedulerConfig

    return SchedulerConfig(
        capacity_scheduler_policy=CapacitySchedulerPolicy(settings.capacity_scheduler_policy)
    )


def _check_lookahead(settings: LlmSettings, artefact: GpuArtefact) -> int:
    """Tokens drafted in a step, 0 without lookahead; refuses more than the engine was built for."""
    if settings.lookahead_sizes is None:
        return 0
    drafted, built = lookahead_tokens(*settings.lookahead_sizes), artefact.manifest.extra.get("max_draft_len")
    if artefact.manifest.extra.get("speculation") != "lookahead":
        raise ArtefactError(
            f"the engine in {artefact.directory} was built without lookahead: take 'lookahead' out, or add "
            f"--speculation lookahead and build again with: {artefact.manifest.command}"
        )
    if isinstance(built, int) and drafted > built:
        raise ArtefactError(
            f"lookahead {settings.lookahead} drafts {drafted} tokens, and the engine in "
            f"{artefact.directory} was built for {built}: build again with: {artefact.manifest.command}"
        )
    return drafted


def _lookahead_config(settings: LlmSettings) -> LookaheadDecodingConfig | None:
    if settings.lookahead_sizes is None:
        return None
    from tensorrt_llm.llmapi import LookaheadDecodingConfig

    window, ngram, verification = settings.lookahead_sizes
    return LookaheadDecodingConfig(
        max_window_size=window, max_ngram_size=ngram, max_verification_set_size=verification
    )
