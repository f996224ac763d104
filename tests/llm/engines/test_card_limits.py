"""Batch and step by card: vLLM's own figures, and the weakest of several GPUs."""

from __future__ import annotations

import pytest

from trimodal.llm.engines.card_limits import card_limits
from trimodal.runtimes.gpu_device import Gpu


def gpu(name: str, mib: int) -> Gpu:
    return Gpu(0, name, "9.0", mib << 20, mib << 20, "580.65")


@pytest.mark.parametrize(
    ("name", "mib", "limits"),
    [
        ("NVIDIA B200", 183359, (1024, 16384)),
        ("NVIDIA H200", 143771, (512, 8192)),
        ("NVIDIA H100 80GB HBM3", 81559, (512, 8192)),
        ("NVIDIA A100-SXM4-80GB", 81920, (256, 2048)),  # the memory of an H100, and not its speed
        ("NVIDIA GB10", 122880, (256, 2048)),
        ("NVIDIA L40S", 46068, (256, 2048)),
        ("NVIDIA L4", 23034, (256, 2048)),
    ],
)
def test_limits_of_a_card(name: str, mib: int, limits: tuple[int, int]) -> None:
    found = card_limits([gpu(name, mib)])
    assert (found.max_num_seqs, found.max_num_batched_tokens) == limits


def test_the_weakest_of_several_decides() -> None:
    h100, b200, l4 = gpu("H100", 81559), gpu("B200", 183359), gpu("L4", 23034)
    assert card_limits([b200, h100]) == card_limits([h100])
    assert card_limits([h100, l4]) == card_limits([l4]) == card_limits([])
