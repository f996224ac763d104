"""Lists NVIDIA cards: memory, bandwidth and compute capability.

Memory is what nvidia-smi shows as total on the card, in MiB: modal-labs/modal-client pull 2797
(A100, H100, L4, L40S), vllm issue 7553 (RTX 4090), TensorRT-LLM issue 10278 (B200); H200 as its
driver reports. Bandwidth is from NVIDIA's data sheet, of the SXM card where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimodal.errors import SettingsError

FP8_SM = 8.9  # Ada and Hopper: the first with FP8 tensor cores.


@dataclass(frozen=True)
class Card:
    """One GPU. `memory` in bytes as nvidia-smi tells, `bandwidth` in bytes/s."""

    name: str
    memory: int
    bandwidth: float
    sm: str

    @property
    def has_fp8(self) -> bool:
        return float(self.sm) >= FP8_SM


def _card(name: str, mib: int, gb_per_s: float, sm: str) -> Card:
    return Card(name, mib << 20, gb_per_s * 1e9, sm)


CARDS = (
    _card("RTX 4090", 24564, 1008, "8.9"),
    _card("L4", 23034, 300, "8.9"),
    _card("L40S", 46068, 864, "8.9"),
    _card("A100 40GB", 40960, 1555, "8.0"),
    _card("A100 80GB", 81920, 2039, "8.0"),
    _card("H100", 81559, 3350, "9.0"),
    _card("H200", 143771, 4800, "9.0"),
    _card("B200", 183359, 8000, "10.0"),
)


def find_card(name: str) -> Card:
    """The card of a name, as "a100-80gb" or "RTX4090". Raises: SettingsError when it is not one card's."""
    wanted = _plain(name)
    exact = [card for card in CARDS if _plain(card.name) == wanted]
    found = exact or [card for card in CARDS if wanted and _plain(card.name).startswith(wanted)]
    if len(found) != 1:
        known = ", ".join(card.name for card in found or CARDS)
        raise SettingsError(f"--card {name}: {'name one of' if found else 'known are'} {known}")
    return found[0]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum()).removeprefix("nvidia")
