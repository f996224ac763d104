"""The tokens of a step, chosen by the speed of a pipeline that takes a set time for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimodal.llm.engines.openvino import pipeline as module
from trimodal.llm.engines.openvino.pipeline import choose_step_tokens
from trimodal.llm.settings import LlmSettings

TIERS = "[tier.standard]\n[tier.premium]\nitl_bound_ms = 400\n[tier.voice]\nitl_bound_ms = 100\n"
Choose = Callable[..., int]


class Pipeline:
    """Takes its prompts in one step each; the first one takes twice as long, as the first of all do."""

    def __init__(self, token_s: float) -> None:
        self.now = 0.0
        self._takes = [2 * token_s, token_s]
        self._prompt = 0

    def add_request(self, id: int, tokens: Any, config: object) -> object:
        self._prompt = tokens
        return object()

    def has_non_finished_requests(self) -> bool:
        return self._prompt > 0

    def step(self) -> None:
        self.now += self._takes.pop(0) * self._prompt
        self._prompt = 0


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Choose:
    monkeypatch.setattr(module, "token_tensor", len)
    monkeypatch.setattr(module, "generation_config", lambda *_: object())

    def chosen(token_s: float, tiers: str = "") -> int:
        (tmp_path / "tiers.toml").write_text(tiers)
        one = Pipeline(token_s)
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: one.now))
        version = tmp_path / "1"
        settings = LlmSettings(version_directory=version, tiers="tiers.toml" if tiers else "")
        return choose_step_tokens(one, settings)

    return chosen


@pytest.mark.parametrize(
    ("token_s", "tiers", "expected"),
    [
        (0.5e-3, "", 352),  # 180 ms of 200, in whole KV blocks
        (0.5e-3, TIERS, 160),  # the tightest of all tiers
        (0.5e-3, "[tier.standard]\n", 352),
        (3e-3, "", 128),  # too slow for the bound: a smaller step would cost everybody
        (1e-5, "", 2048),
    ],
)
def test_a_step_takes_what_the_tightest_bound_allows(
    choose: Choose, token_s: float, tiers: str, expected: int
) -> None:
    assert choose(token_s, tiers) == expected
