# mypy: ignore-errors
# Signatures of vLLM 0.33.0, read from its wheel: the part that trimodal/llm/engines/vllm.py uses. No code.
class SchedulerStats:
    num_running_reqs: int
    num_waiting_reqs: int
    kv_cache_usage: float
    def __init__(
        self, num_running_reqs: int = 0, num_waiting_reqs: int = 0, *, kv_cache_usage: float = 0.0
    ) -> None: ...
