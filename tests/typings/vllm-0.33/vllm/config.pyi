# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
class CacheConfig:
    block_size: int
    num_gpu_blocks: int | None
    kv_cache_size_tokens: int | None

class ModelConfig:
    max_model_len: int

class SpeculativeConfig:
    num_speculative_tokens: int

class VllmConfig:
    model_config: ModelConfig
    cache_config: CacheConfig
    speculative_config: SpeculativeConfig | None
