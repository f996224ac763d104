"""Lists NVIDIA cards: memory, bandwidth and compute capability.

Memory is what nvidia-smi shows as total on the card, in MiB: modal-labs/modal-client pull 2797
(A100, H100, L4, L40S), vllm issue 7553 (RTX 4090), MagicQuill issue 57 (T4), TensorRT-LLM issue 10278
(B200); H200, A10, A10G and RTX PRO 6000 as their drivers report.

CUDA sees less: logs and messages of torch tell "total capacity" (T4: CatVTON issue 133, RTX 4090:
packnet-sfm issue 250, A100: TensorRT-LLM issue 2268 and Control-GIC issue 6, H100: TensorRT-LLM's memory.md,
L40S: MTVCrafter issue 21, a card of the same memory). Those of A10, A10G, L4, RTX PRO 6000, H200 and B200 are
estimated from their neighbours.

Bandwidth is from NVIDIA's data sheet, of the SXM card where there is one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from trimodal.errors import SettingsError
from trimodal.host import host_memory

FP8_SM = 8.9  # Ada and Hopper: the first with FP8 tensor cores.
_COPIED, _COPIES = 128 << 20, 5  # bytes: far more than a cache holds


@dataclass(frozen=True)
class Card:
    """One GPU. `memory` in bytes as nvidia-smi tells, `cuda` what of it CUDA sees, `bandwidth` in bytes/s."""

    name: str
    memory: int
    cuda: int
    bandwidth: float
    sm: str

    @property
    def has_fp8(self) -> bool:
        return float(self.sm) >= FP8_SM


def _card(name: str, mib: int, cuda_gib: float, gb_per_s: float, sm: str) -> Card:
    return Card(name, mib << 20, round(cuda_gib * 2**30), gb_per_s * 1e9, sm)


CARDS = (
    _card("T4", 15360, 14.56, 320, "7.5"),
    _card("RTX 4090", 24564, 23.65, 1008, "8.9"),
    _card("RTX PRO 6000", 97887, 94.97, 1792, "12.0"),
    _card("A10", 23028, 22.03, 600, "8.6"),
    _card("A10G", 23028, 22.03, 600, "8.6"),
    _card("L4", 23034, 22.03, 300, "8.9"),
    _card("L40S", 46068, 44.43, 864, "8.9"),
    _card("A100 40GB", 40960, 39.39, 1555, "8.0"),
    _card("A100 80GB", 81920, 79.14, 2039, "8.0"),
    _card("H100", 81559, 79.10, 3350, "9.0"),
    _card("H200", 143771, 139.75, 4800, "9.0"),
    _card("B200", 183359, 178.36, 8000, "10.0"),
)


def this_machine() -> Card:
    """The memory of this machine, for an engine on its processor; its bandwidth is that of a copy."""
    import numpy as np  # 80 ms, and commands that measure nothing import this module

    memory, _ = host_memory()
    data, target = np.ones(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)
    times = []
    for _ in range(_COPIES):  # the quickest: other work takes its share of the others
        began = time.perf_counter()
        np.copyto(target, data)
        times.append(time.perf_counter() - began)
    return Card("CPU", memory, memory, 2 * _COPIED / min(times), "0.0")  # each byte is read and written


def find_card(name: str) -> Card:
    """The card of a name, as "a100-80gb" or "RTX4090"; "cpu" is this machine.

    Raises: SettingsError when it is not one card's.
    """
    wanted = _plain(name)
    if wanted == "cpu":
        return this_machine()
    exact = [card for card in CARDS if _plain(card.name) == wanted]
    found = exact or [card for card in CARDS if wanted and _plain(card.name).startswith(wanted)]
    if len(found) != 1:
        known = ", ".join(card.name for card in found or CARDS)
        raise SettingsError(f"--card {name}: {'name one of' if found else 'known are'} {known}")
    return found[0]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum()).removeprefix("nvidia")
