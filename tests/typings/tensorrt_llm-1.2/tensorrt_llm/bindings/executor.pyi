# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
class KvCacheMetrics:
    @property
    def num_reused_blocks(self) -> int: ...

class RequestPerfMetrics:
    kv_cache_metrics: KvCacheMetrics
