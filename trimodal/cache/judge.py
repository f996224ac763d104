"""Judges pairs of questions for the semantic layer through a Triton model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trimodal.cache.calibration import FILE, OF_FAKE, Calibration
from trimodal.errors import InternalError, RequestError
from trimodal.repository import FAKE, Built, built_model
from trimodal.triton.calls import infer

FIELDS = ("question", "other")
Pairs = Sequence[tuple[str, str]]


def in_order(one: str, other: str) -> tuple[str, str]:
    """The pair as the judge reads it, whichever of the two is stored: the shorter question first.

    Reading both ways and taking the lower one takes twice the time and tells no more (docs/benchmarks.md).
    """
    first, second = sorted((one, other), key=lambda text: (len(text), text))
    return first, second


class Judge(Protocol):
    """Says how likely one answer is right for two questions. Called from several threads at once."""

    @property
    def checkpoint(self) -> str:
        """SHA-256 of the judge's checkpoint: thresholds are calibrated for one."""

    def same(self, pairs: Pairs) -> list[float]:
        """P(same) of each pair, whichever is named first. Raises RequestError or any other exception."""


class TritonJudge:
    """Calls the judge named `model`, which was built from `checkpoint`."""

    def __init__(self, pb_utils: Any, model: str, checkpoint: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self.checkpoint = checkpoint

    def same(self, pairs: Pairs) -> list[float]:
        """P(same) of each pair, all asked in one batch.

        Raises:
            RequestError: with the model's own code; InternalError when what it sent are no probabilities.
        """
        read = [in_order(one, other) for one, other in pairs]
        question, other = (np.array([[pair[side].encode()] for pair in read], object) for side in (0, 1))
        inputs = {"question": question, "other": other}
        try:
            out = infer(self._pb_utils, self._model, inputs, ("same",), fields=FIELDS)
        except RequestError as error:
            raise type(error)(f"{self._model}: {error}") from None
        same = np.asarray(out["same"], np.float32).reshape(-1)
        if len(same) != len(read) or not ((same >= 0) & (same <= 1)).all():
            raise InternalError(f"{self._model}: {len(same)} numbers for {len(read)} pairs, not all 0 to 1")
        return [float(one) for one in same]


def built_judge(llm: Path, model: str) -> Built:
    """What the judge `model` beside the llm's was built from. Raises: OperatorError, as `built_model`."""
    return built_model(llm, model, parameter="judge", task="judge")


def calibration_of(judge: Built, own: Path | None, max_false_hit: float) -> Calibration:
    """The operator's own calibration, or the strictest of those that lie beside the judge's models.

    Raises:
        SettingsError: there is none for this checkpoint, or no threshold keeps `max_false_hit`.
    """
    if own is None and judge.checkpoint == FAKE:
        return OF_FAKE
    files = [own] if own else [directory / FILE for directory in judge.directories]
    found = [Calibration.read(file, judge.checkpoint) for file in files]
    return max(found, key=lambda one: one.threshold(max_false_hit))
