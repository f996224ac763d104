# TensorRT-LLM 1.2.1, Python API: the part that this project calls. Signatures alone; tests/typings/README.md.
class GuidedDecodingParams:
    grammar: str | None
    def __init__(self, *, grammar: str | None = None) -> None: ...

class SamplingParams:
    guided_decoding: GuidedDecodingParams | None
    end_id: int | None
    pad_id: int | None
    max_tokens: int
    stop_token_ids: list[int] | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    temperature: float | None
    min_tokens: int | None
    ignore_eos: bool
    logprobs: int | None
    return_perf_metrics: bool
    detokenize: bool
    add_special_tokens: bool
    def __init__(
        self,
        *,
        end_id: int | None = None,
        pad_id: int | None = None,
        max_tokens: int = 32,
        stop_token_ids: list[int] | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        temperature: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        guided_decoding: GuidedDecodingParams | None = None,
        min_tokens: int | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        return_perf_metrics: bool = False,
        detokenize: bool = True,
        add_special_tokens: bool = True,
    ) -> None: ...
