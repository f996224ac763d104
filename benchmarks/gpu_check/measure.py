"""Times calls in this thread; imports nothing but torch, and that late."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

MOST_CALLS = 20_000
Figures = dict[str, float]


def timed(call: Callable[[], object], *, items: int, seconds: float, rounds: int = 1) -> Figures:
    """Items a second (the median round's) and percentiles of a call's milliseconds; two calls warm up.

    Args:
        call: returns when its result is there. items: in each call.
    """
    call()
    call()
    rates, times = [], []
    for _ in range(rounds):
        began = at = time.perf_counter()
        count = 0
        while at - began < seconds and count < MOST_CALLS:
            call()
            now = time.perf_counter()
            times.append(now - at)
            at, count = now, count + 1
        rates.append(items * count / (at - began))
    return {"rate": sorted(rates)[len(rates) // 2], **percentiles(times), "calls": len(times)}


def percentiles(seconds: Sequence[float]) -> Figures:
    """p50, p95 and p99 in milliseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {f"p{percent}": 1e3 * ordered[round(last * percent / 100)] for percent in (50, 95, 99)}


def synchronise(device: str) -> None:
    """Waits until the GPU has done what it was given."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
