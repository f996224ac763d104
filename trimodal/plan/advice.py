"""Proposes the least change that makes a deployment fit: a shorter limit, fewer bits or more GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trimodal.errors import SettingsError
from trimodal.plan.architecture import Architecture
from trimodal.plan.memory import Deployment, KvPrecision, Precision, Sizing, size

SHORTEST = 1024  # A limit below this is not worth proposing.
GPU_COUNTS = (2, 4, 8)


def advise(model: Architecture, plan: Deployment) -> list[str]:
    """Up to three remedies, one of each kind, as options of `trimodal plan llm`; empty where it fits.

    Within a kind the first that fits is named: they are ordered by what they cost in quality or money.
    """
    if not size(model, plan).problems:
        return []
    remedies = (
        next((text for text, changed in kind if _fits(model, changed)), None)
        for kind in (_shorter(model, plan), _fewer_bits(plan), _more_gpus(plan))
    )
    return [remedy for remedy in remedies if remedy]


def _shorter(model: Architecture, plan: Deployment) -> Iterator[tuple[str, Deployment]]:
    limit = min(size(model, plan).tokens, model.max_positions or plan.max_seq_len)
    length = limit // 256 * 256
    if SHORTEST <= length < plan.max_seq_len:
        yield f"--max-seq-len {length}", replace(plan, max_seq_len=length)


def _fewer_bits(plan: Deployment) -> Iterator[tuple[str, Deployment]]:
    fp8, weights = plan.card.has_fp8, Precision.fp8 if plan.card.has_fp8 else Precision.int8_wo
    kv = KvPrecision.fp8 if fp8 else KvPrecision.int8
    for precision, kv_precision in (
        (plan.precision, kv),
        (weights, KvPrecision.auto),
        (Precision.fp8 if fp8 else Precision.int8_sq, kv),
        (Precision.int4_awq, KvPrecision.auto),
        (Precision.int4_awq, kv),
    ):
        text = f"--precision {precision.value} --kv-precision {kv_precision.value}"
        yield text, replace(plan, precision=precision, kv_precision=kv_precision)


def _more_gpus(plan: Deployment) -> Iterator[tuple[str, Deployment]]:
    for count in GPU_COUNTS:
        if count > plan.gpus:
            yield f"--tp {count} --pp 1", replace(plan, tp=count, pp=1)


def _fits(model: Architecture, plan: Deployment) -> bool:
    try:
        return not size(model, plan).problems
    except SettingsError:  # Heads that so many GPUs cannot share.
        return False


def cost_per_million(plan: Deployment, price: float, tokens_per_second: float) -> float:
    """US$ a million output tokens: `price` an hour of one GPU, `tokens_per_second` of all GPUs together."""
    return price * plan.gpus / (tokens_per_second * 3600) * 1e6


def longest(sizing: Sizing, model: Architecture) -> int:
    """Tokens of the longest single sequence that the pool and the model take."""
    return min(sizing.tokens, model.max_positions or sizing.tokens)
