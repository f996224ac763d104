"""Judges the recordings of a batch of requests, with one outcome a request.

A refused recording never harms its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimodal.audio.samples import check_samples
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import InternalError, InvalidArgument, RequestError
from trimodal.metrics import Metrics, counters
from trimodal.paths import artefact_directory
from trimodal.turn.engines.protocol import WINDOW, Probabilities, TurnEngine, open_engine
from trimodal.turn.settings import TurnSettings

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32)
LONGEST = 30 * SAMPLE_RATE  # of which the engine hears the end


class TurnService:
    """Checks the recordings of all requests of a batch, and judges the good ones together."""

    def __init__(self, engine: TurnEngine, metrics: Metrics) -> None:
        self._engine = engine
        self._seconds = metrics.histogram(
            "trimodal_turn_seconds", "One run of the model of turns", {}, SECONDS
        )
        self._batches = metrics.histogram(
            "trimodal_turn_batch_size", "Recordings in one run of it", {}, BATCHES
        )
        self._recordings = counters(
            "trimodal_turn_recordings_total", metrics, "Recordings by outcome", "outcome",
            ("judged", "refused"),
        )  # fmt: skip

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
        windows: list[Samples] = []
        parts: dict[int, slice] = {}
        outcomes: list[Probabilities | RequestError] = [InternalError("not judged")] * len(requests)
        for index, rows in enumerate(requests):
            try:
                good = _windows(rows)
            except RequestError as error:
                self._recordings["refused"].increment(max(1, len(rows)))
                outcomes[index] = error
                continue
            parts[index] = slice(len(windows), len(windows) + len(good))
            windows += good
        if not windows:
            return outcomes
        started = time.perf_counter()
        finished = self._engine.judge(windows)
        self._seconds.observe(time.perf_counter() - started)
        self._batches.observe(len(windows))
        self._recordings["judged"].increment(len(windows))
        for index, part in parts.items():
            outcomes[index] = finished[part]
        return outcomes


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
