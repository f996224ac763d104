"""Recordings of a batch: one run for the good ones, a sentence for each bad one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.metrics import MemoryMetrics
from trimodal.turn.engines.fake import FakeTurns
from trimodal.turn.engines.protocol import WINDOW
from trimodal.turn.service import LONGEST, TurnService
from trimodal.turn.settings import TurnSettings

QUIET = np.zeros((1, 3200), np.float32)
LOUD = QUIET + 0.5


def test_one_run_for_all_good_requests_and_each_gets_its_own() -> None:
    metrics = MemoryMetrics()
    bad = QUIET + np.nan
    two = np.concatenate([LOUD, QUIET])
    first, refused, last = TurnService(FakeTurns(), metrics).judge([QUIET, bad, two])
    assert not isinstance(first, Exception)
    assert not isinstance(last, Exception)
    assert (first.tolist(), last.tolist()) == ([pytest.approx(0.9)], pytest.approx([0.1, 0.9]))
    assert str(refused) == "audio: sample 0 is nan; FP32 samples are finite, within [-1, 1]"
    assert metrics.get("trimodal_turn_batch_size", {}).observations == [3]
    counts = [
        metrics.get("trimodal_turn_recordings_total", {"outcome": one}) for one in ("judged", "refused")
    ]
    assert [one.value for one in counts] == [3, 1]


@pytest.mark.parametrize(
    ("audio", "told"),
    [
        (QUIET[:, :0], "audio: 0 samples; 1 to 480000 are accepted (30 s at 16000 Hz)"),
        (np.zeros((1, LONGEST + 1), np.float32), "audio: 480001 samples; 1 to 480000 are accepted"),
        (QUIET[0], r"audio: shape \[rows, samples\] is needed, got \[3200\]"),
        (np.concatenate([QUIET, LOUD * 99]), r"audio\[1\]: a sample of 49.5; FP32 samples lie within"),
    ],
)
def test_refuses_with_a_sentence_that_names_field_and_limit(audio: np.ndarray, told: str) -> None:
    (outcome,) = TurnService(FakeTurns(), MemoryMetrics()).judge([audio])
    with pytest.raises(InvalidArgument, match=told.replace("(30 s", r"\(30 s").replace("Hz)", r"Hz\)")):
        raise outcome  # type: ignore[misc]


def test_the_end_of_a_long_recording_is_judged() -> None:
    seen: list[int] = []

    class Engine(FakeTurns):
        def judge(self, windows):  # type: ignore[no-untyped-def]
            seen.extend(map(len, windows))
            return super().judge(windows)

    long = np.concatenate([LOUD[0], np.zeros(WINDOW, np.float32)])[None]
    (outcome,) = TurnService(Engine(), MemoryMetrics()).judge([long])
    assert seen == [WINDOW]
    assert float(outcome[0]) == pytest.approx(0.9)  # type: ignore[index]


def test_opening_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no built turn engine in .*onnx-int8"):
        TurnService.open(tmp_path, TurnSettings(artefact="onnx-int8"), MemoryMetrics())
    fake = TurnService.open(tmp_path, TurnSettings(artefact="x", engine="fake"), MemoryMetrics())
    assert len(fake.judge([QUIET])) == 1
