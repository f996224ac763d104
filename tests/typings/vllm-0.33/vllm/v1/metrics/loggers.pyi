# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from abc import ABC, abstractmethod
from typing import Any

from .stats import SchedulerStats

class StatLoggerBase(ABC):
    @abstractmethod
    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...
    @abstractmethod
    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None: ...
    @abstractmethod
    def log_engine_initialized(self) -> None: ...
    def log(self) -> None: ...
    def record_sleep_state(self, is_awake: int, level: int) -> None: ...
