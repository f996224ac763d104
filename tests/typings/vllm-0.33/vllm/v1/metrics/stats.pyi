# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from vllm.v1.spec_decode.metrics import SpecDecodingStats

class SchedulerStats:
    num_running_reqs: int
    num_waiting_reqs: int
    kv_cache_usage: float
    spec_decoding_stats: SpecDecodingStats | None
    def __init__(
        self,
        num_running_reqs: int = 0,
        num_waiting_reqs: int = 0,
        *,
        kv_cache_usage: float = 0.0,
        spec_decoding_stats: SpecDecodingStats | None = None,
    ) -> None: ...
