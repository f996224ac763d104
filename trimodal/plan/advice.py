"""Proposes the least change that makes a deployment fit: a shorter limit, fewer bits or more GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trimodal.errors import SettingsError
from trimodal.plan.architecture import Architecture
from trimodal.plan.memory import Deployment, longest, size

SHORTEST = 1024  # A limit below this is not worth proposing.
GPU_COUNTS = (2, 4, 8)


def advise(model: Architecture, deployment: Deployment) -> list[str]:
    """Up to three remedies, one of each kind, as options of `trimodal plan llm`; empty where it fits.

    Within a kind the first that fits is named: they are ordered by what they cost in quality or money.
    """
    sizing = size(model, deployment)
    if not sizing.problems:
        return []
    length = longest(sizing, model) // 256 * 256
    shorter = [{"max_seq_len": length}] if SHORTEST <= length < deployment.max_seq_len else []
    eight = "fp8" if deployment.card.has_fp8 else "int8"
    caches = ("auto", "fp8")[: 1 + deployment.card.has_fp8]
    bits: list[tuple[str, str]] = [(deployment.precision, cache) for cache in caches[1:]]
    bits += [(weights, cache) for weights in (eight, "int4-awq") for cache in caches]
    fewer_bits = [{"precision": weights, "kv_precision": cache} for weights, cache in bits]
    more_gpus = [{"tp": count, "pp": 1} for count in GPU_COUNTS if count > deployment.gpus]
    remedies: tuple[list[dict[str, Any]], ...] = (shorter, fewer_bits, more_gpus)
    fitting = (
        next((change for change in kind if _fits(model, replace(deployment, **change))), None)
        for kind in remedies
    )
    return [_as_options(change) for change in fitting if change]


def _as_options(change: dict[str, Any]) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in change.items())


def _fits(model: Architecture, deployment: Deployment) -> bool:
    try:
        return not size(model, deployment).problems
    except SettingsError:  # Heads that so many GPUs cannot share.
        return False
