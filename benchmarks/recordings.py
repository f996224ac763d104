"""Reads the demo's recordings as long streams of speech."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import soundfile

from trimodal.audio.values import SAMPLE_RATE, Samples

SAMPLES = Path("build/demo/speech/samples")
PAUSE_S = 0.6


def speech(seconds: float, seed: int) -> Samples:
    """Recordings in an order of the seed, with pauses between them: float32 at 16 kHz."""
    files = [SAMPLES / entry["file"] for entry in json.loads((SAMPLES / "samples.json").read_text())]
    rng, pause = random.Random(seed), np.zeros(round(PAUSE_S * SAMPLE_RATE), np.float32)
    parts: list[Samples] = []
    while sum(map(len, parts)) < seconds * SAMPLE_RATE:
        for file in rng.sample(files, len(files)):
            parts += [soundfile.read(file, dtype="float32")[0], pause]
    return np.concatenate(parts)[: round(seconds * SAMPLE_RATE)]
