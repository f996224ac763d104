"""Which load a model gets, by its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimodal.errors import SettingsError
from trimodal.repository import read_model
from trimodal.tune.workload import Workload, kind_of

REPOSITORY = Path(__file__).parents[2] / "model_repository"


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("llm", "llm"),
        ("vision", "vision"),
        ("speech", "speech"),
        ("embedding", "embedding"),
        ("speech_recognize", "tensors"),
        ("assistant", ""),  # it takes images and gives labels, and is no classifier
    ],
)
def test_the_kind_of_a_model(model: str, kind: str) -> None:
    assert kind_of(read_model(REPOSITORY, model, "cpu").config) == kind


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        ({"batch": 4}, "speech", "--batch is of images, texts and rows: leave it out for mine"),
        ({"max_tokens": "64"}, "vision", "--max-tokens is of answers: leave it out for mine"),
        ({"prompt_tokens": "9"}, "tensors", "--prompt-tokens is of prompts and texts"),
        ({"pace": 2.0}, "llm", "--pace is of live streams"),
    ],
)
def test_what_a_model_has_not_is_refused(given: dict[str, Any], kind: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Workload(**given).check({"mine": kind})
    mix = {one: one for one in ("vision", "embedding", "tensors", "llm", "speech")}
    Workload(**given).check(mix)
    Workload().check({"mine": kind})
