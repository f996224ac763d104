# vLLM 0.33.0, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
from enum import Enum

class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2

class StructuredOutputsParams:
    grammar: str | None
    def __init__(self, *, grammar: str | None = None) -> None: ...

class SamplingParams:
    structured_outputs: StructuredOutputsParams | None
    n: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stop: str | list[str] | None
    stop_token_ids: list[int] | None
    ignore_eos: bool
    max_tokens: int | None
    min_tokens: int
    logit_bias: dict[int, float] | None
    logprobs: int | None
    prompt_logprobs: int | None
    detokenize: bool
    output_kind: RequestOutputKind
    def __init__(
        self,
        n: int = 1,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        temperature: float = 1.0,
        watermarking: bool | None = None,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | None = None,
        ignore_eos: bool = False,
        max_tokens: int | None = 16,
        min_tokens: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        *,
        logit_bias: dict[int, float] | None = None,
        structured_outputs: StructuredOutputsParams | None = None,
        detokenize: bool = True,
        output_kind: RequestOutputKind = ...,
    ) -> None: ...
