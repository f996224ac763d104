"""Opens TensorRT-LLM as an engine: checkpoints, by its PyTorch runtime.

Signatures are those of 1.2.1; nothing here was run with the library.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trimodal.errors import OperatorError
from trimodal.llm.engines import artefact as gpu_artefact
from trimodal.llm.engines.artefact import GpuArtefact
from trimodal.llm.engines.async_engine import AsyncEngine
from trimodal.llm.engines.async_runtime import LoopThread
from trimodal.llm.engines.protocol import KV_BLOCK_TOKENS, MAX_TOP_LOGPROBS, Engine, EngineInfo
from trimodal.llm.engines.tensorrt_llm.runtime import TensorRtLlmRuntime
from trimodal.llm.settings import LlmSettings

if TYPE_CHECKING:
    from tensorrt_llm.llmapi import EagleDecodingConfig, NGramDecodingConfig
    from tensorrt_llm.llmapi.llm import BaseLLM


# Read while it is imported: no line a request in the server's log, and what is served is in place.
_ENVIRONMENT = {"TLLM_LOG_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1"}
# The PyTorch runtime takes these, and its sampler does not look at them.
_UNREAD = ("min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


def open_pytorch(settings: LlmSettings) -> Engine:
    """A checkpoint of build/llm_place.py.

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
        speculative_config=_speculation(settings, artefact),
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
    runtime = TensorRtLlmRuntime(llm, artefact.eos_ids, host_cache=settings.host_cache_bytes > 0)
    loop = LoopThread()
    unsupported = _unsupported(drafted=drafted > 0)
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
        block_tokens=kv.block_tokens if kv else KV_BLOCK_TOKENS,
        max_num_seqs=artefact.max_num_seqs,
        max_model_len=artefact.max_model_len,
        lookahead=drafted,
        max_top_logprobs=MAX_TOP_LOGPROBS,
        max_num_batched_tokens=artefact.max_num_batched_tokens,
        vocab_size=int(artefact.manifest.shapes.get("vocab_size", 0)),
        unsupported=unsupported,
    )
    return AsyncEngine(loop, runtime, info)


def _unsupported(*, drafted: bool) -> dict[str, str]:
    """Fields of `Sampling` that it does not honour as it was opened, and why."""
    found = dict.fromkeys(("logit_bias", "lora_name", "prompt_logprobs"), "it takes none from this server")
    found |= dict.fromkeys(_UNREAD, "its sampler knows temperature, top_k and top_p")
    found["min_tokens"] = "it keeps off only one of the tokens that end an answer"
    if drafted:
        found |= dict.fromkeys(("grammar", "logprobs"), "it speculates")
    return found


def _arguments(settings: LlmSettings, artefact: GpuArtefact) -> dict[str, Any]:
    """Of the LLM class, without those that this runtime alone has."""
    from tensorrt_llm.llmapi import KvCacheConfig

    kv_cache = KvCacheConfig(
        enable_block_reuse=settings.enable_prefix_caching,
        free_gpu_memory_fraction=settings.kv_cache_free_gpu_memory_fraction,
        host_cache_size=settings.host_cache_bytes or None,
        max_tokens=settings.num_kv_blocks * KV_BLOCK_TOKENS or None,
        dtype=settings.kv_cache_dtype,
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


def _speculation(
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
