"""Chooses batch and step of an engine by the GPU that runs it, where the settings leave it open.

A row holds from its memory on; the first that fits counts. The figures are vLLM 0.33.0's own for its server
(arg_utils.get_batch_defaults): a larger step holds up every stream that decodes beside it, and on the cards
of the last row, A100s of any size included (vLLM pull 17885), it is slower besides. On Hopper vLLM would take
1024 sequences; it has CUDA graphs for 512 there and for 1024 from Blackwell on (config/vllm.py), so a row
takes no more than that. TensorRT-LLM is given the same, and graphs for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.runtimes.gpu_device import Gpu


@dataclass(frozen=True)
class CardLimits:
    """Sequences in a batch and tokens in a step."""

    max_num_seqs: int
    max_num_batched_tokens: int


_ROWS = (  # GPU memory in GiB at least
    (160, CardLimits(1024, 16384)),  # B200
    (70, CardLimits(512, 8192)),  # H100, H200
    (0, CardLimits(256, 2048)),  # L4, A10, L40S, RTX 4090, A100 40GB
)
_SMALLEST = _ROWS[-1][1]
_SLOWER_THAN_THEIR_MEMORY = ("a100", "gb10")


def card_limits(gpus: Sequence[Gpu]) -> CardLimits:
    """Of the weakest of these GPUs; without any the smallest row."""
    return min((_limits(gpu) for gpu in gpus), key=lambda row: row.max_num_seqs, default=_SMALLEST)


def _limits(gpu: Gpu) -> CardLimits:
    if any(name in gpu.name.lower() for name in _SLOWER_THAN_THEIR_MEMORY):
        return _SMALLEST
    return next(limits for gib, limits in _ROWS if gpu.memory >= gib << 30)
