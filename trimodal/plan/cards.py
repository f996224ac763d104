"""Lists NVIDIA cards: memory, bandwidth, compute capability and a list price.

Memory is what nvidia-smi shows as total on the card, in MiB: modal-labs/modal-client pull 2797
(A100, H100, L4, L40S), vllm issue 7553 (RTX 4090), TensorRT-LLM issue 10278 (B200); H200 as its
driver reports. Bandwidth is from NVIDIA's data sheet, of the SXM card where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimodal.errors import SettingsError

# Per second and "flex" worker, times 3600. A machine of your own or a contract costs less: pass --price.
PRICE_SOURCE = "RunPod serverless list, docs.runpod.io/serverless/pricing, read 2026-11"
LAMBDA_SOURCE = (
    "Lambda on-demand list of 2026-05-07, as quoted by "
    "techbytes.app/posts/serverless-gpu-pricing-matrix-modal-replicate-lambda-2026"
)
FP8_SM = 8.9  # Ada and Hopper: the first with FP8 tensor cores.


@dataclass(frozen=True)
class Card:
    """One GPU. `memory` in bytes as nvidia-smi tells, `bandwidth` in bytes/s, `price` in US$ an hour."""

    name: str
    memory: int
    bandwidth: float
    sm: str
    price: float
    price_source: str = PRICE_SOURCE

    @property
    def has_fp8(self) -> bool:
        return float(self.sm) >= FP8_SM


def _card(name: str, mib: int, gb_per_s: float, sm: str, price: float, source: str = PRICE_SOURCE) -> Card:
    return Card(name, mib << 20, gb_per_s * 1e9, sm, round(price, 2), source)


CARDS = (
    _card("RTX 4090", 24564, 1008, "8.9", 0.00031 * 3600),
    _card("L4", 23034, 300, "8.9", 0.00019 * 3600),
    _card("L40S", 46068, 864, "8.9", 0.00053 * 3600),
    _card("A100 40GB", 40960, 1555, "8.0", 1.48, LAMBDA_SOURCE),
    _card("A100 80GB", 81920, 2039, "8.0", 0.00076 * 3600),
    _card("H100", 81559, 3350, "9.0", 0.00116 * 3600),
    _card("H200", 143771, 4800, "9.0", 0.00155 * 3600),
    _card("B200", 183359, 8000, "10.0", 0.00240 * 3600),
)


def find_card(name: str) -> Card:
    """The card of a name, whatever its case and spaces ("a100-80gb", "RTX4090").

    Raises:
        SettingsError: no card, or more than one, is called that.
    """
    wanted = _plain(name)
    exact = [card for card in CARDS if _plain(card.name) == wanted]
    found = exact or [card for card in CARDS if wanted and _plain(card.name).startswith(wanted)]
    if len(found) != 1:
        known = ", ".join(card.name for card in found or CARDS)
        raise SettingsError(f"--card {name}: {'name one of' if found else 'known are'} {known}")
    return found[0]


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum()).removeprefix("nvidia")
