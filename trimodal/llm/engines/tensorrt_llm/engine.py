"""Opens TensorRT-LLM as an engine: its compiled engines, or checkpoints by its PyTorch runtime.

Signatures are those of 1.2.1; nothing here was run with the library.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trimodal.errors import ArtefactError, OperatorError
from trimodal.llm.engines import artefact as gpu_artefact
from trimodal.llm.engines.artefact import GpuArtefact
from trimodal.llm.engines.async_engine import AsyncEngine
from trimodal.llm.engines.async_runtime import LoopThread
from trimodal.llm.engines.protocol import MAX_TOP_LOGPROBS, Engine, EngineInfo
from trimodal.llm.engines.tensorrt_llm.runtime import TensorRtLlmRuntime
from trimodal.llm.settings import LlmSettings
from trimodal.runtimes.gpu_fit import check_version

if TYPE_CHECKING:
    from tensorrt_llm.llmapi import EagleDecodingConfig, LookaheadDecodingConfig, NGramDecodingConfig
    from tensorrt_llm.llmapi.llm import BaseLLM


# Read while it is imported: no line a request in the server's log, and what is served is in place.
_ENVIRONMENT = {"TLLM_LOG_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1"}
# The PyTorch runtime verifies drafts with its own sampler, which knows temperature, top_k and top_p.
_UNSPECULATED = ("min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens")


def open_compiled(settings: LlmSettings) -> Engine:
    """An engine directory of build/llm_tensorrt_llm.py, by the runtime that it was compiled for.

    Raises:
        OperatorError: the artefact is missing or does not fit this machine or these settings.
    """
    artefact = gpu_artefact.compiled(settings)
    drafted = _drafted_tokens(artefact)
    _set_environment(artefact)
    import tensorrt_llm

    check_version(artefact.directory, artefact.manifest, tensorrt_llm.__version__)
    from tensorrt_llm._tensorrt_engine import LLM
    from tensorrt_llm.llmapi import ExtendedRuntimePerfKnobConfig

    # Beside speculation grammars are refused, so nothing for them is opened.
    guided = {"guided_decoding_backend": None} if drafted else {}
    # Off by default, and then each of a step's kernels is launched by the processor. A graph is of one batch.
    knobs = ExtendedRuntimePerfKnobConfig(cuda_graph_mode=True, cuda_graph_cache_size=artefact.max_num_seqs)
    llm = LLM(
        **_arguments(settings, artefact) | guided,
        speculative_config=_compiled_speculation(artefact),
        extended_runtime_perf_knob_config=knobs,
    )
    return _follow(settings, artefact, llm, drafted=drafted)


def open_pytorch(settings: LlmSettings) -> Engine:
    """A checkpoint of build/llm_place.py, by the library's PyTorch runtime; later releases have no other.

    Raises:
        OperatorError: the artefact is missing or another one, or GPUs are.
    """
    artefact = gpu_artefact.checkpoint(settings)
    _set_environment(artefact)
    from tensorrt_llm import LLM
    from tensorrt_llm.llmapi import CudaGraphConfig

    # By default it has graphs for 1 to 32, 64 and 128 sequences, and runs batches of other sizes without.
    graphs = CudaGraphConfig(enable_padding=True, max_batch_size=artefact.max_num_seqs)
    drafted = settings.drafted_tokens
    guided = {"guided_decoding_backend": None} if drafted else {}
    llm = LLM(
        **_arguments(settings, artefact) | guided,
        cuda_graph_config=graphs,
        speculative_config=_checkpoint_speculation(settings, artefact),
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        enable_iter_perf_stats=True,  # KV figures; off by default on this backend
    )
    return _follow(settings, artefact, llm, drafted=drafted)


def _set_environment(artefact: GpuArtefact) -> None:
    """What the library reads while it is imported and opened; the operator's own settings stay.

    With one GPU the executor runs in this process: by default MPI starts a rank for it, through a daemon in
    a session of its own, which would hold the GPU's memory when this process is killed.
    """
    alone = {"TLLM_WORKER_USE_SINGLE_PROCESS": "1"} if artefact.gpus == 1 else {}
    os.environ.update({**_ENVIRONMENT, **alone, **os.environ})


def _follow(settings: LlmSettings, artefact: GpuArtefact, llm: BaseLLM, *, drafted: int) -> Engine:
    """The opened library, warm, with its KV pool's size known."""
    compiled = settings.engine == "tensorrt_llm"
    runtime = TensorRtLlmRuntime(
        llm,
        artefact.eos_ids,
        host_cache=settings.host_cache_bytes > 0,
        reused_blocks=compiled and settings.enable_prefix_caching,
    )
    loop = LoopThread()
    unsupported = _unsupported(compiled=compiled, drafted=drafted > 0)
    try:
        kv = loop.run(runtime.begin(unsupported))
        if not kv and not settings.num_kv_blocks:
            raise OperatorError("TensorRT-LLM does not tell how many KV blocks it has: set num_kv_blocks")
    except BaseException:
        loop.close(runtime)
        raise
    info = EngineInfo(
        name=settings.engine,
        num_kv_blocks=kv.total if kv else settings.num_kv_blocks,
        block_tokens=kv.block_tokens if kv else artefact.block_tokens,
        max_num_seqs=artefact.max_num_seqs,
        max_model_len=artefact.max_model_len,
        lookahead=drafted,
        max_top_logprobs=MAX_TOP_LOGPROBS,
        max_num_batched_tokens=artefact.max_num_batched_tokens,
        vocab_size=int(artefact.manifest.shapes.get("vocab_size", 0)),
        unsupported=unsupported,
    )
    return AsyncEngine(loop, runtime, info)


def _unsupported(*, compiled: bool, drafted: bool) -> dict[str, str]:
    """Fields of `Sampling` that it does not honour as it was opened, and why."""
    found = dict.fromkeys(("logit_bias", "lora_name", "prompt_logprobs"), "it takes none from this server")
    if drafted:
        names = ("grammar",) if compiled else ("grammar", "logprobs", *_UNSPECULATED)
        found |= dict.fromkeys(names, "it speculates")
    if compiled:
        # The library would compute them of logits that an engine keeps only if it is built to.
        found["logprobs"] = "it was compiled without"
    return found


def _arguments(settings: LlmSettings, artefact: GpuArtefact) -> dict[str, Any]:
    """Of the LLM class, for both backends."""
    from tensorrt_llm.llmapi import KvCacheConfig

    kv_cache = KvCacheConfig(
        enable_block_reuse=settings.enable_prefix_caching,
        free_gpu_memory_fraction=settings.kv_cache_free_gpu_memory_fraction,
        host_cache_size=settings.host_cache_bytes or None,
        max_tokens=settings.num_kv_blocks * artefact.block_tokens or None,
        dtype=settings.kv_cache_dtype,  # "auto" for a compiled engine: it was built with one
    )
    return {
        "model": str(artefact.directory),
        "skip_tokenizer_init": False,  # grammars need the tokens' texts
        "guided_decoding_backend": "xgrammar",
        "kv_cache_config": kv_cache,
        "enable_chunked_prefill": settings.enable_chunked_prefill,
        "max_batch_size": artefact.max_num_seqs,
        "max_num_tokens": artefact.max_num_batched_tokens,
        "max_seq_len": artefact.max_model_len,
    }


def lookahead_tokens(window: int, ngram: int, verification: int) -> int:
    """Tokens that lookahead decoding drafts in a step at most; an engine is built for no more."""
    return max(0, ngram - 2) + (window - 1 + verification) * (ngram - 1)


def _drafted_tokens(artefact: GpuArtefact) -> int:
    """Tokens drafted in a step, 0 without speculation; build/steps/llm/speculation.py notes them."""
    return int(_figures(artefact).get("max_draft_len", 0))


def _compiled_speculation(artefact: GpuArtefact) -> LookaheadDecodingConfig | None:
    """What the LLM class has to be told of an engine that drafts; imports TensorRT-LLM."""
    from tensorrt_llm.llmapi import LookaheadDecodingConfig

    figures = _figures(artefact)
    if (method := figures.get("method", "none")) not in ("none", "lookahead"):
        # Older builds had Medusa and EAGLE: opened without their configuration, they would not draft.
        raise ArtefactError(f"the engine was built for speculation by {method}: build again with lookahead")
    if "lookahead" not in figures:
        return None
    window, ngram, verification = figures["lookahead"]
    return LookaheadDecodingConfig(
        max_window_size=window, max_ngram_size=ngram, max_verification_set_size=verification
    )


def _checkpoint_speculation(
    settings: LlmSettings, artefact: GpuArtefact
) -> EagleDecodingConfig | NGramDecodingConfig | None:
    """What the PyTorch runtime's LLM class drafts with; imports TensorRT-LLM."""
    from tensorrt_llm.llmapi import EagleDecodingConfig, NGramDecodingConfig

    if settings.speculation == "eagle3":
        # Heads that are a part of the model answer sampled requests greedily (1.2): here they are apart.
        return EagleDecodingConfig(
            max_draft_len=settings.num_assistant_tokens,
            speculative_model=str(artefact.draft),
            eagle3_one_model=False,
        )
    if settings.speculation == "prompt_lookup":
        return NGramDecodingConfig(
            max_draft_len=settings.num_assistant_tokens,
            max_matching_ngram_size=settings.max_ngram_size,
            is_public_pool=False,  # what one client wrote must not be drafted from for another
        )
    return None


def _figures(artefact: GpuArtefact) -> dict[str, Any]:
    figures: dict[str, Any] = artefact.manifest.extra.get("speculation") or {"method": "none"}
    return figures
