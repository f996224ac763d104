"""Makes the pictures of the vision bench, and runs its bare side: the steps without a server.

It has two kinds of work: `engine`, the classifier alone on uint8 pixels that lie ready
(its graph normalises them, as it does when served), and `pipeline`, which also decodes and ranks.
Both sides read the same settings. The baseline in torch is in torch_baseline.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.bench.common.closed_loop import Works, some
from trimodal.bench.common.serving import settings_of
from trimodal.errors import RequestError
from trimodal.metrics import MemoryMetrics
from trimodal.repository import Model
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.settings import PreprocessSettings, VisionSettings

PICTURES = 32  # different ones: no cache of the processor holds all their pixels


def jpegs(width: int, height: int, count: int = PICTURES) -> list[bytes]:
    """JPEG files of random smooth shapes with some grain: about as many bytes as photographs of that size."""
    from PIL import Image

    rng = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        shapes = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        grain = rng.normal(0, 8, (height, width, 1))
        pixels = np.clip(np.asarray(shapes) + grain, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def vision_settings(models: Mapping[str, Model]) -> VisionSettings | None:
    """The settings of vision on the server; None where it is a pipeline: Triton itself runs its classifier.

    Raises:
        SettingsError: names the file and the key that is malformed.
    """
    vision = models["vision"]
    return None if vision.steps else settings_of(VisionSettings, vision)


def classifier_directory(models: Mapping[str, Model]) -> Path:
    """Where the artefact lies that the vision models read.

    Raises:
        SettingsError: names the file and the key that is malformed.
    """
    if settings := vision_settings(models):
        return (models["vision"].version_directory / settings.artefact).resolve()
    preprocess = models["vision_preprocess"]
    classifier = settings_of(PreprocessSettings, preprocess).classifier
    return (preprocess.version_directory / classifier).resolve()


def sizes_up_to(most: int) -> list[int]:
    """1, 2, 4, … and `most`."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def larger_batches(most: int, model: str, config: Any) -> None:
    """Edits the ModelConfig of a vision model in place for batches of up to `most` images."""
    if not model.startswith("vision"):
        return
    config.max_batch_size = most
    if config.backend == "python" and "warm_up_batch_sizes" in config.parameters:
        sizes = sizes_up_to(most)
        config.parameters["warm_up_batch_sizes"].string_value = ",".join(map(str, sizes))
        if config.dynamic_batching.preferred_batch_size:
            config.dynamic_batching.preferred_batch_size[:] = sizes[1:]


def random_pixels(directory: Path) -> Pixels:
    """Different pictures uint8[N, 3, H, W], of the size that the classifier in this directory wants."""
    spec = read_classifier(directory).input
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (PICTURES, 3, spec.height, spec.width), dtype=np.uint8)


def open_bare(version: Path, settings: VisionSettings, files: Sequence[bytes]) -> Works:
    """`engine` and `pipeline`, each on a batch; opened in the bare side's process."""
    from trimodal.vision.engines.protocol import open_engine, runtime_of
    from trimodal.vision.steps import VisionStep

    artefact = read_classifier((version / settings.artefact).resolve(), runtime=runtime_of(settings.engine))
    engine = open_engine(artefact, settings)
    step = VisionStep.on(engine, artefact, settings, MemoryMetrics())
    ready, _ = step.preprocess.prepare_batch([files])
    ready = np.concatenate([ready, ready])

    def run_engine(batch: int, number: int) -> None:
        at = number * batch % len(files) if batch <= len(files) else 0
        engine.classify(ready[at : at + batch])

    def run_pipeline(batch: int, number: int) -> None:
        (answer,) = step.classify([some(files, number, batch)])
        if isinstance(answer, RequestError):
            raise answer

    return {"engine": run_engine, "pipeline": run_pipeline}
