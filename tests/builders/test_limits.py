"""build/steps/limits.py: which figures of a check end a build, and which are told."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest

from tests.builders.scripts import Later
from trimodal.errors import ArtefactError

pytestmark = pytest.mark.build
limits = Later("steps.limits")


@pytest.mark.parametrize(
    ("kind", "figure", "asked", "end"),
    [
        ("error", 0.009, None, "kept"),
        ("error", 0.02, None, "warned"),
        ("error", 0.1, None, "warned"),
        ("error", 0.11, None, "refused"),
        ("error", math.nan, None, "refused"),
        ("error", math.inf, None, "refused"),
        ("error", 0.02, 0.01, "refused"),
        ("error", 0.02, 0.05, "kept"),
        ("error", math.nan, 0.05, "refused"),
        ("agreement", 0.95, None, "kept"),
        ("agreement", 0.9, None, "warned"),
        ("agreement", 0.46, None, "refused"),
        ("agreement", math.nan, None, "refused"),
        ("agreement", 0.9, 0.95, "refused"),
        ("agreement", 0.9, 0.9, "kept"),
    ],
)
def test_figures(kind: str, figure: float, asked: float | None, end: str) -> None:
    figures = {"it": figure}
    usual, says = (0.01, "differ from the graph's by") if kind == "error" else (0.95, "on")
    refused = pytest.raises(ArtefactError, match=f"^they {says} ")
    with refused if end == "refused" else nullcontext():
        getattr(limits, f"hold_{kind}")(figures, "it", usual, asked, who="they")
    assert end == "refused" or ("warning" in figures) == (end == "warned")
