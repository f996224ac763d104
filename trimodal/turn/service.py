"""Judges the recordings of a batch of requests, with one outcome a request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimodal.audio.samples import check_samples
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import InvalidArgument, RequestError
from trimodal.metrics import Metrics
from trimodal.paths import artefact_directory
from trimodal.runtimes.shared_runs import SharedRuns
from trimodal.turn.engines.protocol import WINDOW, Probabilities, TurnEngine, open_engine
from trimodal.turn.settings import TurnSettings

LONGEST = 30 * SAMPLE_RATE  # of which the engine hears the end


class TurnService:
    """Checks the recordings of all requests of a batch, and judges the good ones together."""

    def __init__(self, engine: TurnEngine, metrics: Metrics) -> None:
        self._engine = engine
        self._runs = SharedRuns(
            metrics, "trimodal_turn", "the model of turns", "Recordings", "judged", span="judge"
        )

    @classmethod
    def open(cls, version: Path, settings: TurnSettings, metrics: Metrics) -> TurnService:
        """Opens the artefact that `settings` names and runs it once."""
        engine = open_engine(artefact_directory(version, settings.artefact), settings)
        engine.judge([np.zeros(WINDOW, np.float32)])
        return cls(engine, metrics)

    def judge(self, requests: Sequence[Samples]) -> list[Probabilities | RequestError]:
        """P(finished) float32[rows] for each request float32[rows, samples], or its first error.

        A recording is judged by its last 8 s. It should end 0.2 s after the last word: the model learned
        from such.
        """
        return self._runs.run(requests, lambda rows: max(1, len(rows)), _windows, self._engine.judge)


def _windows(rows: Samples) -> list[Samples]:
    """The end of each row. Raises: InvalidArgument."""
    if rows.ndim != 2 or not len(rows):
        raise InvalidArgument(f"audio: shape [rows, samples] is needed, got {list(rows.shape)}")
    samples = rows.shape[1]
    if not 0 < samples <= LONGEST:
        raise InvalidArgument(
            f"audio: {samples} samples; 1 to {LONGEST} are accepted "
            f"({LONGEST // SAMPLE_RATE} s at {SAMPLE_RATE} Hz)"
        )
    for index, row in enumerate(rows):
        check_samples(row, "audio" if len(rows) == 1 else f"audio[{index}]")
    return [row[-WINDOW:] for row in rows]
