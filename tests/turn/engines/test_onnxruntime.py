"""Features as the model was trained on, and real recordings, whole and cut, judged by real weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from trimodal.audio.values import SAMPLE_RATE
from trimodal.metrics import MemoryMetrics
from trimodal.paths import data_directory
from trimodal.turn.engines.onnxruntime import features
from trimodal.turn.engines.protocol import WINDOW
from trimodal.turn.service import TurnService
from trimodal.turn.settings import TurnSettings

SAMPLES = data_directory() / "samples" / "speech"
VERSION = data_directory() / "model_repository" / "turn" / "1"


@pytest.mark.parametrize("samples", [WINDOW, 20_000, 1])
def test_features_are_those_of_transformers(samples: int) -> None:
    transformers = pytest.importorskip("transformers")
    audio = np.random.default_rng(samples).normal(0.02, 0.1, samples).astype(np.float32)
    padded = np.pad(audio, (WINDOW - samples, 0))
    extract = transformers.WhisperFeatureExtractor(chunk_length=8)
    expected = extract(padded, sampling_rate=SAMPLE_RATE, do_normalize=True, return_tensors="np")
    np.testing.assert_allclose(features(audio), expected.input_features[0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not (VERSION / "onnx-int8").is_dir(), reason="trimodal build turn starter:smart-turn-v3")
def test_sentences_are_told_from_their_beginnings() -> None:
    """A cut goes through the middle of a word."""
    pause = np.zeros(SAMPLE_RATE // 5, np.float32)
    service = TurnService.open(VERSION, TurnSettings(artefact="onnx-int8"), MemoryMetrics())
    whole, cut = [], []
    for entry in json.loads((SAMPLES / "samples.json").read_text()):
        samples, rate = soundfile.read(SAMPLES / entry["file"], dtype="float32")
        assert rate == SAMPLE_RATE
        parts = (samples, samples[: round(0.55 * len(samples))])
        rows = [np.concatenate([part, pause])[None, -WINDOW:] for part in parts]
        for values, judged in zip((whole, cut), service.judge(rows), strict=True):
            values.append(float(judged[0]))  # type: ignore[index]
    ranked = [one > other for one in whole for other in cut]
    assert np.mean(ranked) > 0.8, (whole, cut)
    # What pipecat 1.14.0's own code makes of telephone-2-busy.flac with the same pause.
    assert (whole[6], cut[6]) == (pytest.approx(0.985, abs=0.02), pytest.approx(0.058, abs=0.02))
