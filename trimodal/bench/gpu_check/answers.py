"""Checks that engines answer on this GPU as on the processor: the same artefact and inputs.

The build scripts have compared each artefact with torch on the processor only. Too great a difference is an
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.errors import ArtefactError
from trimodal.runtimes.onnx_session import Device

MOST_ERROR = 1e-2  # of the largest logit; FP16 graphs were built to the same bound
LEAST_AGREEMENT = 0.95  # of images whose best class is the same
LEAST_COSINE = 0.999
LEAST_TEXTS = 0.8  # of windows with the same text: one close decision changes a word
BATCHES = (1, 3, 16)  # alone, filled up to a size, and as large as served


def vision(directory: Path, device: Device) -> dict[str, float]:
    """Largest difference of a logit relative to the largest logit, and the share of equal best classes."""
    from trimodal.bench.vision.sides import random_pixels
    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import open_engine
    from trimodal.vision.settings import ClassifySettings

    artefact, pixels = read_classifier(directory), random_pixels(directory)
    given = {"artefact": str(directory), "warm_up_batch_sizes": (1, 4, 16)}
    ours, theirs = (
        open_engine(artefact, ClassifySettings.model_validate(given | {"device": each}))
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
    from trimodal.bench.embedding import random_texts
    from trimodal.embedding.engines.protocol import open_engine
    from trimodal.embedding.settings import EmbeddingSettings

    texts = [text for words in (1, 16, 120, 400) for text in random_texts(words)[:16]]
    ours, theirs = (
        open_engine(directory, EmbeddingSettings(artefact=str(directory), device=each)).embed(texts).vectors
        for each in (device, "cpu")
    )
    lowest = float((ours * theirs).sum(1).min())
    _bound(lowest >= LEAST_COSINE, f"the lowest cosine of a text's vectors is {lowest:.4f}")
    return {"lowest_cosine": lowest}


def speech(directory: Path, device: Device, samples: Path) -> dict[str, float]:
    """Share of windows of 5 s with the same text."""
    from trimodal.bench.speech.sides import cut_windows
    from trimodal.bench.speech.utterances import read_utterances
    from trimodal.manifest import read_manifest
    from trimodal.speech.engines.protocol import open_engine
    from trimodal.speech.settings import RecogniseSettings
    from trimodal.speech.values import Window

    engine = read_manifest(directory, task="speech", runtime=None).runtime
    windows = [Window(one) for one in cut_windows([one.samples for one in read_utterances(samples)], 5.0, 16)]

    def texts(on: str) -> Sequence[str]:
        settings: dict[str, Any] = {"artefact": str(directory), "engine": engine, "device": on}
        with closing(open_engine(directory, RecogniseSettings.model_validate(settings))) as opened:
            return [one.text for one in opened.recognise(windows)]

    same = float(np.mean([ours == theirs for ours, theirs in zip(texts(device), texts("cpu"), strict=True)]))
    _bound(same >= LEAST_TEXTS, f"texts are the same in {same:.3f} of the windows")
    return {"same_texts": same}


def _bound(kept: bool, sentence: str) -> None:
    if not kept:
        raise ArtefactError(f"not the same answers as on the processor: {sentence}")
