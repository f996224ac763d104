# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from .llmapi.kv_cache_type import KVCacheType
from .plugin.plugin import PluginConfig

class BuildConfig:
    max_input_len: int
    max_seq_len: int | None
    max_batch_size: int
    max_beam_width: int
    max_num_tokens: int
    kv_cache_type: KVCacheType | None
    plugin_config: PluginConfig
    def __init__(
        self,
        *,
        max_input_len: int = 1024,
        max_seq_len: int | None = None,
        max_batch_size: int = 2048,
        max_beam_width: int = 1,
        max_num_tokens: int = 8192,
        kv_cache_type: KVCacheType | None = None,
        plugin_config: PluginConfig = ...,
    ) -> None: ...
