"""Which parameters of llm's config.pbtxt each engine knows, and the defaults that differ between engines.

A parameter that the chosen engine would not read is refused: an operator who sets one expects
something of it. Values are checked in settings.py, what an artefact allows where it is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

GPU_ENGINES = ("tensorrt_llm", "tensorrt_llm_pytorch", "vllm")
"""They run on NVIDIA GPUs, batch by themselves, and have processes of their own beside the engine's."""

_CPU = ("openvino",)
_COMPILED = ("tensorrt_llm",)
_FROM_CHECKPOINT = ("tensorrt_llm_pytorch", "vllm")
_TENSORRT_LLM = ("tensorrt_llm", "tensorrt_llm_pytorch")

# Parameter → engines that read it. What is not listed, all of them do. The fake engine stands in for any.
_READ_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "threads", "kv_cache_precision", "numerics", "speculation", "draft_artefact",
            "num_assistant_tokens", "max_ngram_size",
        ),
        _CPU,
    ),
    **dict.fromkeys(
        ("max_model_len", "enable_chunked_prefill", "precision", "checkpoint_sha256", "stall_timeout_s"),
        GPU_ENGINES,
    ),
    **dict.fromkeys(
        ("kv_cache_free_gpu_memory_fraction", "host_cache_bytes", "capacity_scheduler_policy"), _TENSORRT_LLM
    ),
    **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size", "kv_cache_dtype"), _FROM_CHECKPOINT),
    "gpu_memory_utilization": ("vllm",),
    "lookahead": _COMPILED,
}  # fmt: skip

# On a GPU the KV pool is what memory allows, and a step holds thousands of tokens.
_GPU_DEFAULTS: dict[str, Any] = {"num_kv_blocks": 0, "max_num_seqs": 64, "max_num_batched_tokens": 8192}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "tensorrt_llm": {"artefact": "tensorrt-llm-fp16", **_GPU_DEFAULTS},
    "tensorrt_llm_pytorch": {"artefact": "checkpoint", **_GPU_DEFAULTS},
    "vllm": {"artefact": "checkpoint", **_GPU_DEFAULTS},
}


def defaults_of(engine: object) -> dict[str, Any]:
    """The defaults of an engine where they are not those of the settings class."""
    return _DEFAULTS.get(engine, {}) if isinstance(engine, str) else {}


def unknown_to(engine: str, parameters: Iterable[str]) -> str:
    """One sentence for the parameters that `engine` does not read; empty when it reads them all."""
    if engine == "fake":
        return ""
    problems = []
    for name in sorted(parameters):
        readers = _READ_BY.get(name)
        if readers and engine not in readers:
            problems.append(f"'{name}' (read by {' and '.join(readers)})")
    if not problems:
        return ""
    them = "it" if len(problems) == 1 else "them"
    return f"engine '{engine}' does not read {', '.join(problems)}: take {them} out"
