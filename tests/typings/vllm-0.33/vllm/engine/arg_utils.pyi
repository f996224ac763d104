# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from typing import Any

from ..utils.argparse_utils import FlexibleArgumentParser

class AsyncEngineArgs:
    def __init__(
        self,
        *,
        model: str = ...,
        skip_tokenizer_init: bool = False,
        dtype: str = "auto",
        kv_cache_dtype: str = "auto",
        seed: int = 0,
        max_model_len: int = ...,
        pipeline_parallel_size: int = 1,
        tensor_parallel_size: int = 1,
        block_size: int | None = None,
        enable_prefix_caching: bool | None = None,
        gpu_memory_utilization: float = 0.92,
        kv_cache_memory_bytes: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_num_seqs: int | None = None,
        disable_log_stats: bool = False,
        quantization: str | None = None,
        speculative_config: dict[str, Any] | None = None,
        enforce_eager: bool = False,
        num_gpu_blocks_override: int | None = None,
        enable_chunked_prefill: bool | None = None,
        generation_config: str = "auto",
        enable_log_requests: bool = False,
        enable_lora: bool = False,
        max_loras: int = 1,
        max_lora_rank: int = 16,
        max_cpu_loras: int | None = None,
        enable_sleep_mode: bool = False,
        async_scheduling: bool | None = None,
    ) -> None: ...
    @staticmethod
    def add_cli_args(
        parser: FlexibleArgumentParser, async_args_only: bool = False
    ) -> FlexibleArgumentParser: ...
