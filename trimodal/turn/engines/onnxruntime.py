"""Judges turns with smart-turn v3 on ONNX Runtime: a Whisper encoder's features of 8 s, and one number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimodal.audio.values import Samples
from trimodal.manifest import read_manifest
from trimodal.runtimes.onnx_runner import Runner, open_model
from trimodal.speech.whisper.features import Features, log_mel
from trimodal.turn.engines.protocol import WINDOW, WINDOW_S, Probabilities
from trimodal.turn.settings import TurnSettings

BANDS = 80
_LEAST_VARIANCE = 1e-7


def features(samples: Samples) -> Features:
    """float32[80, 800] of float32[n], n ≤ WINDOW: silence before it, mean 0, variance 1, then Whisper's.

    As transformers' WhisperFeatureExtractor(chunk_length=8) has it with do_normalize, which the model was
    trained with: the silence counts for mean and variance.
    """
    window = np.zeros(WINDOW, np.float32)
    window[WINDOW - len(samples) :] = samples
    window -= window.mean()
    return log_mel(window / np.sqrt(window.var() + _LEAST_VARIANCE), WINDOW_S, BANDS)


class OnnxRuntimeTurns:
    """One session; calls may come from several threads."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def judge(self, windows: Sequence[Samples]) -> Probabilities:
        """P(finished) of each window: what the graph calls logits has its sigmoid behind it."""
        inputs = {"input_features": np.stack([features(window) for window in windows])}
        return np.asarray(self._runner.run(inputs, "logits"), np.float32).reshape(-1)


def open_engine(directory: Path, settings: TurnSettings) -> OnnxRuntimeTurns:
    """Opens a session on `model.onnx`.

    Raises ArtefactError: missing, damaged, refused or of another checkpoint; ServerError: no CUDA.
    """
    manifest = read_manifest(directory, task="turn", runtime="onnxruntime")
    return OnnxRuntimeTurns(open_model(directory, manifest, settings))
