"""Proposes the least change that makes a deployment fit: a shorter limit, fewer bits or more GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trimodal.errors import SettingsError
from trimodal.plan.architecture import Architecture
from trimodal.plan.memory import Deployment, KvPrecision, Precision, Sizing, size

SHORTEST = 1024  # A limit below this is not worth proposing.
GPU_COUNTS = (2, 4, 8)


def advise(model: Architecture, deployment: Deployment) -> list[str]:
    """Up to three remedies, one of each kind, as options of `trimodal plan llm`; empty where it fits.

    Within a kind the first that fits is named: they are ordered by what they cost in quality or money.
    """
    if not size(model, deployment).problems:
        return []
    remedies = (
        next((text for text, changed in kind if _fits(model, changed)), None)
        for kind in (_shorter(model, deployment), _fewer_bits(deployment), _more_gpus(deployment))
    )
    return [remedy for remedy in remedies if remedy]


def _shorter(model: Architecture, deployment: Deployment) -> Iterator[tuple[str, Deployment]]:
    limit = min(size(model, deployment).tokens, model.max_positions or deployment.max_seq_len)
    length = limit // 256 * 256
    if SHORTEST <= length < deployment.max_seq_len:
        yield f"--max-seq-len {length}", replace(deployment, max_seq_len=length)


def _fewer_bits(deployment: Deployment) -> Iterator[tuple[str, Deployment]]:
    fp8, weights = deployment.card.has_fp8, Precision.fp8 if deployment.card.has_fp8 else Precision.int8_wo
    kv = KvPrecision.fp8 if fp8 else KvPrecision.int8
    for precision, kv_precision in (
        (deployment.precision, kv),
        (weights, KvPrecision.auto),
        (Precision.fp8 if fp8 else Precision.int8_sq, kv),
        (Precision.int4_awq, KvPrecision.auto),
        (Precision.int4_awq, kv),
    ):
        text = f"--precision {precision.value} --kv-precision {kv_precision.value}"
        yield text, replace(deployment, precision=precision, kv_precision=kv_precision)


def _more_gpus(deployment: Deployment) -> Iterator[tuple[str, Deployment]]:
    for count in GPU_COUNTS:
        if count > deployment.gpus:
            yield f"--tp {count} --pp 1", replace(deployment, tp=count, pp=1)


def _fits(model: Architecture, deployment: Deployment) -> bool:
    try:
        return not size(model, deployment).problems
    except SettingsError:  # Heads that so many GPUs cannot share.
        return False


def cost_per_million(deployment: Deployment, price: float, tokens_per_second: float) -> float:
    """US$ a million output tokens: `price` an hour of one GPU, `tokens_per_second` of all GPUs together."""
    return price * deployment.gpus / (tokens_per_second * 3600) * 1e6


def longest(sizing: Sizing, model: Architecture) -> int:
    """Tokens of the longest single sequence that the pool and the model take."""
    return min(sizing.tokens, model.max_positions or sizing.tokens)
