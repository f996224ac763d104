"""Which load a model gets, by its tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.repository import read_model
from trimodal.tune.workload import kind_of

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
