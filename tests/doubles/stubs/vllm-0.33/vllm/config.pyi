# mypy: ignore-errors
# Signatures of vLLM 0.33.0, read from its wheel: the part that trimodal/llm/engines/vllm.py uses. No code.
class CacheConfig:
    block_size: int
    num_gpu_blocks: int | None
    kv_cache_size_tokens: int | None

class ModelConfig:
    max_model_len: int

class VllmConfig:
    model_config: ModelConfig
    cache_config: CacheConfig
