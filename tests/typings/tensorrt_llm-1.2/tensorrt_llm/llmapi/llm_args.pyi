# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal, TypeAlias

class QuantAlgo(str, Enum):
    W8A16 = "W8A16"
    W4A16_AWQ = "W4A16_AWQ"
    W8A8_SQ_PER_CHANNEL = "W8A8_SQ_PER_CHANNEL"
    FP8 = "FP8"
    INT8 = "INT8"

@dataclass
class QuantConfig:
    quant_algo: QuantAlgo | None = None
    kv_cache_quant_algo: QuantAlgo | None = None

class CalibConfig:
    calib_dataset: str
    calib_batches: int
    calib_batch_size: int
    calib_max_seq_length: int
    def __init__(
        self,
        *,
        device: Literal["cuda", "cpu"] = "cuda",
        calib_dataset: str = "cnn_dailymail",
        calib_batches: int = 512,
        calib_batch_size: int = 1,
        calib_max_seq_length: int = 512,
    ) -> None: ...

class CapacitySchedulerPolicy(str, Enum):
    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"

class SchedulerConfig:
    capacity_scheduler_policy: CapacitySchedulerPolicy
    def __init__(self, *, capacity_scheduler_policy: CapacitySchedulerPolicy = ...) -> None: ...

class KvCacheConfig:
    enable_block_reuse: bool
    max_tokens: int | None
    free_gpu_memory_fraction: float | None
    host_cache_size: int | None
    dtype: str
    tokens_per_block: int
    def __init__(
        self,
        *,
        enable_block_reuse: bool = True,
        max_tokens: int | None = None,
        free_gpu_memory_fraction: float | None = 0.9,
        host_cache_size: int | None = None,
        dtype: str = "auto",
        tokens_per_block: int = 32,
    ) -> None: ...

class CudaGraphConfig:
    batch_sizes: list[int] | None
    max_batch_size: int
    enable_padding: bool
    def __init__(
        self,
        *,
        batch_sizes: list[int] | None = None,
        max_batch_size: int = 0,
        enable_padding: bool = False,
    ) -> None: ...

class ExtendedRuntimePerfKnobConfig:
    multi_block_mode: bool
    enable_context_fmha_fp32_acc: bool
    cuda_graph_mode: bool
    cuda_graph_cache_size: int
    def __init__(
        self,
        *,
        multi_block_mode: bool = True,
        enable_context_fmha_fp32_acc: bool = False,
        cuda_graph_mode: bool = False,
        cuda_graph_cache_size: int = 0,
    ) -> None: ...

class MedusaDecodingConfig:
    max_draft_len: int | None
    speculative_model: str | Path | None
    medusa_choices: list[list[int]] | None
    num_medusa_heads: int | None
    def __init__(
        self,
        *,
        max_draft_len: int | None = None,
        speculative_model: str | Path | None = None,
        medusa_choices: list[list[int]] | None = None,
        num_medusa_heads: int | None = None,
    ) -> None: ...

class EagleDecodingConfig:
    max_draft_len: int | None
    speculative_model: str | Path | None
    eagle_choices: str | list[list[int]] | None
    use_dynamic_tree: bool | None
    dynamic_tree_max_topK: int | None
    num_eagle_layers: int | None
    max_non_leaves_per_layer: int | None
    eagle3_one_model: bool | None
    def __init__(
        self,
        *,
        max_draft_len: int | None = None,
        speculative_model: str | Path | None = None,
        eagle_choices: str | list[list[int]] | None = None,
        use_dynamic_tree: bool | None = False,
        dynamic_tree_max_topK: int | None = None,
        num_eagle_layers: int | None = None,
        max_non_leaves_per_layer: int | None = None,
        eagle3_one_model: bool | None = True,
    ) -> None: ...

class LookaheadDecodingConfig:
    max_window_size: int
    max_ngram_size: int
    max_verification_set_size: int
    def __init__(
        self,
        *,
        max_window_size: int = 4,
        max_ngram_size: int = 3,
        max_verification_set_size: int = 4,
    ) -> None: ...

class NGramDecodingConfig:
    max_draft_len: int | None
    max_matching_ngram_size: int
    is_keep_all: bool
    is_use_oldest: bool
    is_public_pool: bool
    def __init__(
        self,
        *,
        max_draft_len: int | None = None,
        max_matching_ngram_size: int = 2,
        is_keep_all: bool = True,
        is_use_oldest: bool = True,
        is_public_pool: bool = True,
    ) -> None: ...

SpeculativeConfig: TypeAlias = EagleDecodingConfig | LookaheadDecodingConfig | MedusaDecodingConfig | None
