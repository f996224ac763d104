"""Reads how a request wants its tokens chosen; what it leaves out is as the checkpoint says."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import MAX_TOP_LOGPROBS, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.reading import MAX_BYTES, read_json
from trimodal.triton.fields import Inputs, boolean, integer, integers, number, shown, text

INPUTS = (
    *("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("top_logprobs", "min_tokens", "ignore_eos", "stop_token_ids", "logit_bias", "lora_name"),
)
_MOST_MIN_P = 0.999
"""OpenVINO GenAI refuses 1, which would mean greedy."""
_GREEDY_BELOW = 1e-5
"""Below it the choice is greedy anyway, and logits divided by it can leave FP32's range (vLLM's limit)."""
_MOST_BIASES = 1024
MAX_NAME_BYTES = 256
_MOST_STOP_IDS = 128
MAX_TOKEN_ID = (1 << 31) - 1


def read_sampling(inputs: Inputs, settings: LlmSettings, grammar: str) -> Sampling:
    """How tokens are chosen, and where they end.

    Raises:
        InvalidArgument: names the field and its limit.
    """
    defaults = settings.sampling_defaults
    max_tokens = integer(inputs, "max_tokens", settings.default_max_tokens, 1, settings.max_output_tokens)
    temperature = number(inputs, "temperature", -1.0, 0.0, 10.0)
    top_p = number(inputs, "top_p", defaults.top_p, 0.0, 1.0, above=True)
    top_k = max(0, integer(inputs, "top_k", defaults.top_k, -1, 1 << 20))
    min_p = number(inputs, "min_p", defaults.min_p, 0.0, _MOST_MIN_P)
    seed = integer(inputs, "seed", None, 0, (1 << 64) - 1)
    if temperature < 0:
        temperature = defaults.temperature
        filters = {"seed": seed is not None, "top_p": top_p < 1, "top_k": top_k, "min_p": min_p}
        if not temperature and any(inputs.keys() & {name for name, value in filters.items() if value}):
            temperature = 1.0  # OpenAI's default: who names one of these wants a sample
    min_tokens = integer(inputs, "min_tokens", 0, 0, settings.max_output_tokens)
    ignore_eos = bool(boolean(inputs, "ignore_eos"))
    if grammar and (min_tokens or ignore_eos):
        name = "min_tokens" if min_tokens else "ignore_eos"
        raise InvalidArgument(
            f"{name} goes with neither response_format nor tools: an answer in a form ends with it"
        )
    return Sampling(
        max_tokens=max_tokens,
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        min_p=min_p,
        presence_penalty=number(inputs, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number(inputs, "frequency_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=number(
            inputs, "repetition_penalty", defaults.repetition_penalty, 0.0, 10.0, above=True
        ),
        grammar=grammar,
        logprobs=integer(inputs, "top_logprobs", None, 0, MAX_TOP_LOGPROBS),
        prompt_logprobs=integer(inputs, "prompt_logprobs", None, 0, MAX_TOP_LOGPROBS),
        min_tokens=min_tokens,
        ignore_eos=ignore_eos,
        stop_token_ids=integers(inputs, "stop_token_ids", 0, MAX_TOKEN_ID, _MOST_STOP_IDS),
        logit_bias=_biases(text(inputs, "logit_bias", MAX_BYTES)),
        lora_name=text(inputs, "lora_name", MAX_NAME_BYTES) or "",
    )


def _biases(given: str | None) -> Mapping[int, float]:
    """Token id → what is added to its logit, of a JSON object."""
    if given is None:
        return {}
    biases = read_json("logit_bias", given)
    if not isinstance(biases, dict) or len(biases) > _MOST_BIASES:
        raise InvalidArgument(f"logit_bias must be a JSON object of at most {_MOST_BIASES} token ids")
    read: dict[int, float] = {}
    for id, bias in biases.items():
        if not id.isascii() or not id.isdigit() or len(id) > 10 or int(id) > MAX_TOKEN_ID:
            raise InvalidArgument(f"logit_bias has {shown(id)}: token ids are needed")
        known = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not known or not math.isfinite(bias) or not -100 <= bias <= 100:
            raise InvalidArgument(f"logit_bias of token {id} is {shown(bias)}: -100 to 100 are taken")
        read[int(id)] = float(bias)
    return read
