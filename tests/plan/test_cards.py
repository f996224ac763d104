"""Names of cards, and that the table is what the data sheets say."""

from __future__ import annotations

import pytest

from trimodal.errors import SettingsError
from trimodal.plan.cards import CARDS, find_card


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("H100", "H100"),
        ("h200", "H200"),
        ("rtx4090", "RTX 4090"),
        ("NVIDIA L4", "L4"),
        ("a100-80gb", "A100 80GB"),
        ("A100 40", "A100 40GB"),
        ("L40S", "L40S"),
    ],
)
def test_names(name: str, card: str) -> None:
    assert find_card(name).name == card


def test_an_unclear_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="--card A100: name one of A100 40GB, A100 80GB"):
        find_card("A100")
    with pytest.raises(SettingsError, match="--card T4: known are RTX 4090, L4"):
        find_card("T4")
    with pytest.raises(SettingsError, match="known are"):
        find_card("")


def test_fp8_begins_with_ada() -> None:
    assert [card.name for card in CARDS if not card.has_fp8] == ["A100 40GB", "A100 80GB"]
