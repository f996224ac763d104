"""Opens OpenVINO GenAI's pipeline and writes its configurations."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimodal.host import host_cpus
from trimodal.llm.engines.prefix_mirror import salted
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import read_tiers

# What makes an answer independent of the requests in its batch. Without each of the three, greedy tokens were
# seen to differ between a solo run and a batch of 16: bf16 sums (the default on CPUs that have them),
# activations quantised to INT8 on the fly, and a KV scale per channel, which depends on how a prompt was cut
# into steps.
REPRODUCIBLE = {
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    "KEY_CACHE_QUANT_MODE": "BY_TOKEN",
}
# What is quickest where `numerics` is fast. Without bf16 the processor multiplies in INT8, and activations
# are scaled in groups of so many. OpenVINO's own 32 makes four times as many scales (2026.4); what 128 gains
# on AVX512-VNNI is in docs/benchmarks.md. One scale for a whole row leaves that path and is slower. Where
# bf16 is used it changes nothing.
FAST = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 128}
_TIMED_STEPS = 16
_TIMED_PROMPT = 128
# Tokens of a step where they are chosen by speed. Fewer than 128 cost a lone prompt time (400 tokens: 11 %
# with 96 or 64); more than 256 gain nothing on two cores, the most is for processors that compute it in time.
FEWEST_STEP_TOKENS, _MOST_STEP_TOKENS, _MULTIPLE = 128, 2048, 32
_STEP_SAFETY = 0.9  # of the bound: steps of one size differ
_ITL_BOUND_MS = 200.0  # where no tier has one


def open_pipeline(settings: LlmSettings, *, speculate: bool, changed: Mapping[str, Any] | None = None) -> Any:
    """A ContinuousBatchingPipeline with the settings' KV pool, precision and speculation.

    Args:
        changed: for benches: properties of the CPU plugin that are to be other than these.
    """
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = settings.num_kv_blocks
    # Where they are still to be chosen: with prefix caching the engine keeps to its choice by itself.
    unchosen = _MOST_STEP_TOKENS if settings.enable_prefix_caching else FEWEST_STEP_TOKENS
    scheduler.max_num_batched_tokens = settings.max_num_batched_tokens or unchosen
    scheduler.max_num_seqs = settings.max_num_seqs
    scheduler.enable_prefix_caching = settings.enable_prefix_caching
    properties: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": settings.threads or host_cpus(),
        "KV_CACHE_PRECISION": settings.kv_cache_precision,
    }
    properties |= REPRODUCIBLE if settings.numerics == "reproducible" else FAST
    if speculate:
        properties["prompt_lookup"] = True
    properties |= changed or {}
    return genai.ContinuousBatchingPipeline(str(settings.artefact_directory), scheduler, "CPU", properties)


def generation_config(
    sampling: Sampling, eos_ids: list[int], *, drafted: int = 0, max_ngram_size: int = 0
) -> Any:
    """The runtime's form of `sampling`; `drafted` and `max_ngram_size` are for speculation, else 0."""
    from openvino_genai import GenerationConfig

    config = GenerationConfig()
    config.max_new_tokens = sampling.max_tokens
    config.min_new_tokens = sampling.min_tokens
    # Its own `ignore_eos` ignores every stop token; without any id it takes the checkpoint's.
    stop_ids = [*sampling.stop_token_ids, *([] if sampling.ignore_eos else eos_ids)]
    config.ignore_eos = sampling.ignore_eos and not stop_ids
    config.eos_token_id = stop_ids[0] if stop_ids else -1
    config.stop_token_ids = set(stop_ids)
    config.apply_chat_template = False
    config.do_sample = sampling.temperature > 0
    if config.do_sample:
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        if sampling.top_k:
            config.top_k = sampling.top_k
        config.min_p = sampling.min_p
        # The pipeline's own default is one fixed seed: every unseeded answer would be the same.
        config.rng_seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
    config.presence_penalty, config.frequency_penalty, config.repetition_penalty = sampling.penalties
    if sampling.logprobs is not None:
        config.logprobs = 1  # the chosen token's; 0: none
    if sampling.grammar:
        from openvino_genai import StructuredOutputConfig

        config.structured_output_config = StructuredOutputConfig(grammar=sampling.grammar)
    if drafted:
        config.num_assistant_tokens = drafted
    if max_ngram_size:
        config.max_ngram_size = max_ngram_size
    return config


def token_tensor(token_ids: list[int]) -> Any:
    """Token ids as the INT64[1, n] tensor that the pipeline takes."""
    import openvino

    return openvino.Tensor(np.asarray([token_ids], dtype=np.int64))


def warm_up(pipeline: Any) -> bool:
    """Short requests through a plain pipeline, so that the first client does not pay for first use.

    Returns whether prompts may be salted: a salt did not change the answer.
    """
    config = generation_config(Sampling(max_tokens=4), [])
    answers: list[list[int]] = []
    for prompt in ([1] * 8, salted([1] * 8, "a tenant")):
        handle = pipeline.add_request(0, token_tensor(prompt), config)
        tokens: list[int] = []
        while pipeline.has_non_finished_requests():
            pipeline.step()
            while handle.can_read():
                for output in handle.read().values():
                    tokens += output.generated_ids
        answers.append(tokens)
    return answers[0] == answers[1]


def choose_step_tokens(pipeline: Any, settings: LlmSettings) -> int:
    """Tokens of a step that keeps the tightest ITL bound of the tiers, by the speed of this idle pipeline.

    All that a step computes, prompts and the streams' own tokens, is between two tokens of each stream.
    """
    path = settings.beside_config(settings.tiers)
    tiers = read_tiers(path).tier.values() if path else ()
    bound_ms = min((tier.itl_bound_ms for tier in tiers if tier.itl_bound_ms), default=_ITL_BOUND_MS)
    tokens = _STEP_SAFETY * bound_ms / 1e3 / _time_prompt_token(pipeline)
    return int(min(max(tokens, FEWEST_STEP_TOKENS), _MOST_STEP_TOKENS)) // _MULTIPLE * _MULTIPLE


def _time_prompt_token(pipeline: Any) -> float:
    """Seconds of a token of a prompt: the quicker of two prompts, which begin unlike each other."""
    config = generation_config(Sampling(max_tokens=1), [])
    took = []
    for first in (2, 3):
        began = time.perf_counter()
        handle = pipeline.add_request(0, token_tensor([first] * _TIMED_PROMPT), config)
        while pipeline.has_non_finished_requests():
            pipeline.step()
        took.append(time.perf_counter() - began)
        del handle
    return min(took) / _TIMED_PROMPT


def time_plain_steps(pipeline: Any, max_num_seqs: int) -> dict[int, float]:
    """Median seconds of a decoding step of an idle pipeline, for a few batch sizes up to the largest."""
    return {
        batch: _time_step(pipeline, batch)
        for batch in sorted({1, min(4, max_num_seqs), min(16, max_num_seqs)})
    }


def _time_step(pipeline: Any, batch: int) -> float:
    config = generation_config(Sampling(max_tokens=_TIMED_STEPS + 2), [])
    config.ignore_eos = True
    # Distinct short prompts: a shared one would be served by the prefix cache. A dropped handle would stop
    # its request, so they are kept.
    handles = [pipeline.add_request(id, token_tensor([id + 1] * 8), config) for id in range(batch)]
    times = []
    while pipeline.has_non_finished_requests():
        began = time.perf_counter()
        pipeline.step()
        times.append(time.perf_counter() - began)
    del handles
    return float(np.median(times[2:]))
