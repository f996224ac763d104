"""Checks that engines answer on this GPU as on the processor: the same artefact and inputs.

The build scripts have compared each artefact with torch on the processor only. Too great a difference is an
error.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import ArtefactError
from trimodal.runtimes.onnx_session import Device

MOST_ERROR = 1e-2  # of the largest logit; FP16 graphs were built to the same bound
LEAST_AGREEMENT = 0.95  # of images whose best class is the same
LEAST_COSINE = 0.999
LEAST_TEXTS = 0.8  # of windows with the same text: one close decision changes a word
BATCHES = (1, 3, 16)  # alone, filled up to a size, and as large as served
WORDS = ("the", "a", "cat", "dog", "house", "river", "reads", "builds", "old", "server", "of", "in")
SAMPLE_RATE = 16_000


def texts(words: int, count: int) -> list[str]:
    """Different texts of so many words, the same in every run."""
    rng = random.Random(words)
    return [" ".join(rng.choices(WORDS, k=words)) for _ in range(count)]


def windows(seconds: float, count: int) -> list[NDArray[np.float32]]:
    """Different made-up sounds at 16 kHz, which rise and fall as speech does."""
    rng = np.random.default_rng(0)
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    made = []
    for _ in range(count):
        pitch, pace, phase = rng.uniform((90, 2, 0), (250, 6, 6))
        voice = sum(np.sin(2 * np.pi * pitch * tone * time) / tone for tone in range(1, 9))
        noise = rng.normal(0, 0.02, len(time))
        made.append((0.1 * voice * (1 + np.sin(pace * time + phase)) + noise).astype(np.float32))
    return made


def vision(directory: Path, device: Device) -> dict[str, float]:
    """Largest difference of a logit relative to the largest logit, and the share of equal best classes."""
    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import open_engine
    from trimodal.vision.settings import VisionSettings

    artefact = read_classifier(directory)
    shape = (max(BATCHES), 3, artefact.input.height, artefact.input.width)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    given = {"artefact": str(directory), "warm_up_batch_sizes": (1, 4, 16)}
    ours, theirs = (
        open_engine(artefact, VisionSettings.model_validate(given | {"device": each}))
        for each in (device, "cpu")
    )
    errors, same = [], []
    for batch in BATCHES:
        found, wanted = ours.classify(pixels[:batch]), theirs.classify(pixels[:batch])
        errors.append(float(np.abs(found - wanted).max() / np.abs(wanted).max()))
        same += list(found.argmax(1) == wanted.argmax(1))
    worst = float(np.max(errors))  # NaN stays, which max() may drop
    figures = {"relative_error": worst, "top1_agreement": float(np.mean(same))}
    _bound(worst <= MOST_ERROR, f"logits differ by {worst:.4f} of the largest")
    _bound(figures["top1_agreement"] >= LEAST_AGREEMENT, f"top-1 agrees in {figures['top1_agreement']:.3f}")
    return figures


def embedding(directory: Path, device: Device) -> dict[str, float]:
    """Lowest cosine of a text's two vectors, over short and long texts."""
    from trimodal.embedding.engines.protocol import open_engine
    from trimodal.embedding.settings import EmbeddingSettings

    asked = [text for words in (1, 16, 120, 400) for text in texts(words, 16)]
    ours, theirs = (
        open_engine(directory, EmbeddingSettings(artefact=str(directory), device=each)).embed(asked).vectors
        for each in (device, "cpu")
    )
    lowest = float((ours * theirs).sum(1).min())
    _bound(lowest >= LEAST_COSINE, f"the lowest cosine of a text's vectors is {lowest:.4f}")
    return {"lowest_cosine": lowest}


def speech(directory: Path, engine: str, device: Device) -> dict[str, float]:
    """Share of windows of 5 s with the same text."""
    from trimodal.speech.engines.protocol import open_engine
    from trimodal.speech.settings import RecogniseSettings
    from trimodal.speech.values import Window

    heard = [Window(one) for one in windows(5.0, 8)]

    def recognised(on: str) -> Sequence[str]:
        settings: dict[str, Any] = {"artefact": str(directory), "engine": engine, "device": on}
        with closing(open_engine(directory, RecogniseSettings.model_validate(settings))) as opened:
            return [one.text for one in opened.recognise(heard)]

    pairs = zip(recognised(device), recognised("cpu"), strict=True)
    same = float(np.mean([ours == theirs for ours, theirs in pairs]))
    _bound(same >= LEAST_TEXTS, f"texts are the same in {same:.3f} of the windows")
    return {"same_texts": same}


def _bound(kept: bool, sentence: str) -> None:
    if not kept:
        raise ArtefactError(f"not the same answers as on the processor: {sentence}")
