# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from .logprobs import Logprob

class CompletionOutput:
    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: int | str | None

class RequestOutput:
    request_id: str
    prompt_token_ids: list[int] | None
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int | None
