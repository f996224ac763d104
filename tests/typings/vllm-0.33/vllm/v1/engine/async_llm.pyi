# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from collections.abc import AsyncGenerator
from typing import Any

from ...config import VllmConfig
from ...engine.arg_utils import AsyncEngineArgs
from ...lora.request import LoRARequest
from ...outputs import RequestOutput
from ...sampling_params import SamplingParams

class AsyncLLM:
    vllm_config: VllmConfig
    @classmethod
    def from_engine_args(
        cls,
        engine_args: AsyncEngineArgs,
        start_engine_loop: bool = True,
        usage_context: Any = ...,
        stat_loggers: list[Any] | None = None,
    ) -> AsyncLLM: ...
    def shutdown(self, timeout: float | None = None) -> None: ...
    def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        prompt_text: str | None = None,
        lora_request: LoRARequest | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput]: ...
    async def abort(self, request_id: str, internal: bool = False) -> None: ...
    async def add_lora(self, lora_request: LoRARequest) -> bool: ...
    async def remove_lora(self, lora_id: int) -> bool: ...
    async def sleep(self, level: int = 1, mode: str = "abort") -> None: ...
    async def wake_up(self, tags: list[str] | None = None) -> bool: ...
    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any: ...
    async def check_health(self) -> None: ...
    @property
    def is_running(self) -> bool: ...
    @property
    def errored(self) -> bool: ...
