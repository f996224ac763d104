"""Implements Muon, the optimizer of both trainings, and tells whether bfloat16 pays on this machine.

On a CPU without instructions for bfloat16 torch.optim.Muon (2.13) took 1.3 s a step of the demo LLM instead
of 0.4 s, and autocast made the rest 3.4 s instead of 1.1 s: both are emulated there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
MOMENTUM, WEIGHT_DECAY = 0.95, 0.02


def has_fast_bfloat16(device: str) -> bool:
    """Whether the device multiplies bfloat16 itself."""
    cpu = Path("/proc/cpuinfo")
    return device == "cuda" or (cpu.exists() and "bf16" in cpu.read_text())


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal, with AdamW's size of step; for matrices only."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step along the gradients."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                momentum = state.setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - MOMENTUM)
                update = orthogonal(weight.grad.lerp(momentum, MOMENTUM))
                weight.mul_(1 - group["lr"] * WEIGHT_DECAY)
                weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def orthogonal(update: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz iterations: the singular values of the update come near one."""
    a, b, c = COEFFICIENTS
    wide = update if update.shape[0] <= update.shape[1] else update.T
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if update.shape[0] <= update.shape[1] else wide.T
