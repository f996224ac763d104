"""Names of cards, and that the table is what the data sheets say."""

from __future__ import annotations

import pytest

from trimodal.errors import SettingsError
from trimodal.plan.cards import CARDS, find_card


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("h200", "H200"),
        ("rtx4090", "RTX 4090"),
        ("NVIDIA L4", "L4"),
        ("a100-80gb", "A100 80GB"),
        ("A100 40", "A100 40GB"),
        ("A10", "A10"),
        ("rtx-pro-6000", "RTX PRO 6000"),
    ],
)
def test_names(name: str, card: str) -> None:
    assert find_card(name).name == card


def test_an_unclear_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="--card A100: name one of A100 40GB, A100 80GB"):
        find_card("A100")
    with pytest.raises(SettingsError, match="--card V100: known are T4, RTX 4090"):
        find_card("V100")
    with pytest.raises(SettingsError, match="known are"):
        find_card("")


def test_cuda_sees_some_of_a_card_s_memory_less() -> None:
    for card in CARDS:
        assert 0.2 < (card.memory - card.cuda) / 2**30 < 0.9, card.name
