"""build/steps/limits.py: which figures of a check end a build, and which are told."""

from __future__ import annotations

import math

import pytest

from tests.builders.scripts import Later
from trimodal.errors import ArtefactError

pytestmark = pytest.mark.build
limits = Later("steps.limits")


@pytest.mark.parametrize(
    ("error", "asked", "end"),
    [
        (0.009, None, "kept"),
        (0.02, None, "warned"),
        (0.1, None, "warned"),
        (0.11, None, "refused"),
        (math.nan, None, "refused"),
        (math.inf, None, "refused"),
        (0.02, 0.01, "refused"),
        (0.02, 0.05, "kept"),
        (math.nan, 0.05, "refused"),
    ],
)
def test_errors(error: float, asked: float | None, end: str) -> None:
    figures = {"logits": error}
    if end == "refused":
        with pytest.raises(ArtefactError, match="^its logits differ from the graph's by "):
            limits.hold_error(figures, "logits", 0.01, asked, who="its logits", option="--max-error")
    else:
        limits.hold_error(figures, "logits", 0.01, asked, who="its logits")
        assert ("warning" in figures) == (end == "warned")


@pytest.mark.parametrize(
    ("share", "asked", "end"),
    [
        (0.95, None, "kept"),
        (0.9, None, "warned"),
        (0.46, None, "refused"),
        (math.nan, None, "refused"),
        (0.9, 0.95, "refused"),
        (0.9, 0.9, "kept"),
    ],
)
def test_agreements(share: float, asked: float | None, end: str) -> None:
    figures = {"words": share}
    if end == "refused":
        with pytest.raises(ArtefactError, match="^they agree on "):
            limits.hold_agreement(figures, "words", 0.95, asked, who="they agree")
    else:
        limits.hold_agreement(figures, "words", 0.95, asked, who="they agree")
        assert ("warning" in figures) == (end == "warned")
