from __future__ import annotations

import random
from statistics import mean, median

import pytest

from trimodal.bench.load.lengths import parse_lengths
from trimodal.errors import SettingsError


def drawn(text: str, least: int = 1) -> list[int]:
    rng = random.Random(0)
    lengths = parse_lengths(text, "--prompt-tokens", least)
    return [lengths.draw(rng) for _ in range(4000)]


def test_each_form_draws_what_it_says() -> None:
    assert set(drawn("64")) == {64}
    uniform = drawn("uniform:32-256")
    assert (min(uniform), max(uniform)) == (32, 256)
    assert mean(uniform) == pytest.approx(144, rel=0.03)
    lognormal = drawn("lognormal:400,0.6")
    assert median(lognormal) == pytest.approx(400, rel=0.05)
    assert mean(lognormal) > 450


def test_nothing_below_the_least_is_drawn() -> None:
    assert min(drawn("lognormal:20,1", least=8)) == 8


@pytest.mark.parametrize(
    "text",
    ["", "many", "-1", "0", "inf", "nan", "uniform:9", "uniform:9-3", "lognormal:4", "lognormal:4,x",
     "zipf:2,3", "normal:400,80", "fixed:2,3", "lognormal:4,-1", "lognormal:400,80", "2000000"],
)  # fmt: skip
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match=f"--prompt-tokens {text}"):
        parse_lengths(text, "--prompt-tokens")
