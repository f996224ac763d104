# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from typing import Literal

class PluginConfig:
    gemm_plugin: Literal["auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4"] | None
    low_latency_gemm_plugin: Literal["fp8"] | None
    reduce_fusion: bool
    tokens_per_block: int
    use_paged_context_fmha: bool
    use_fp8_context_fmha: bool
    multiple_profiles: bool
    def __init__(
        self,
        *,
        gemm_plugin: Literal["auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4"] | None = None,
        low_latency_gemm_plugin: Literal["fp8"] | None = None,
        reduce_fusion: bool = False,
        tokens_per_block: int = 32,
        use_paged_context_fmha: bool = True,
        use_fp8_context_fmha: bool = True,
        multiple_profiles: bool = False,
    ) -> None: ...
