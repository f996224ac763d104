# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from typing_extensions import Self

from ..builder import BuildConfig
from ..executor.result import GenerationResult, IterationResult
from ..sampling_params import SamplingParams
from .llm_args import (
    CalibConfig,
    CudaGraphConfig,
    EagleDecodingConfig,
    ExtendedRuntimePerfKnobConfig,
    KvCacheConfig,
    NGramDecodingConfig,
    QuantConfig,
    SchedulerConfig,
    SpeculativeConfig,
)

class RequestOutput(GenerationResult): ...

class BaseLLM:
    def generate(
        self,
        inputs: str | list[int] | Sequence[str | list[int]],
        sampling_params: SamplingParams | list[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> RequestOutput | list[RequestOutput]: ...
    def generate_async(
        self,
        inputs: str | list[int],
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = False,
        cache_salt: str | None = None,
    ) -> RequestOutput: ...
    def get_stats_async(self, timeout: float | None = 2) -> IterationResult: ...
    def shutdown(self) -> None: ...
    def _check_health(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]: ...

# At run time both classes take **kwargs and check the names themselves: TrtLlmArgs', TorchLlmArgs'.
class _TrtLLM(BaseLLM):
    def __init__(
        self,
        model: str | Path,
        *,
        skip_tokenizer_init: bool = False,
        tensor_parallel_size: int = 1,
        pipeline_parallel_size: int = 1,
        dtype: str = "auto",
        kv_cache_config: KvCacheConfig = ...,
        enable_chunked_prefill: bool = False,
        guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None,
        scheduler_config: SchedulerConfig = ...,
        speculative_config: SpeculativeConfig = None,
        max_batch_size: int | None = None,
        max_seq_len: int | None = None,
        max_num_tokens: int | None = 8192,
        workspace: str | None = None,
        calib_config: CalibConfig | None = None,
        quant_config: QuantConfig | None = None,
        build_config: BuildConfig | None = None,
        extended_runtime_perf_knob_config: ExtendedRuntimePerfKnobConfig | None = None,
    ) -> None: ...
    def save(self, engine_dir: str) -> None: ...

class _TorchLLM(BaseLLM):
    def __init__(
        self,
        model: str | Path,
        *,
        skip_tokenizer_init: bool = False,
        tensor_parallel_size: int = 1,
        pipeline_parallel_size: int = 1,
        kv_cache_config: KvCacheConfig = ...,
        enable_chunked_prefill: bool = False,
        guided_decoding_backend: Literal["xgrammar", "llguidance"] | None = None,
        scheduler_config: SchedulerConfig = ...,
        max_batch_size: int | None = None,
        max_seq_len: int | None = None,
        max_num_tokens: int | None = 8192,
        enable_iter_perf_stats: bool = False,
        cuda_graph_config: CudaGraphConfig | None = ...,
        speculative_config: EagleDecodingConfig | NGramDecodingConfig | None = None,
    ) -> None: ...

class LLM(_TorchLLM): ...
