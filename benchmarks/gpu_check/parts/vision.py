"""Measures a ResNet-50: in ONNX Runtime, and as a TensorRT plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.artefacts import provide
from benchmarks.gpu_check.steps import Options, Step, require_onnxruntime
from trimodal.errors import ArtefactError

BUILD = Path(__file__).parents[3] / "build"
MOST_ERROR = 1e-2  # of the largest logit; FP16 graphs were built to the same bound


def sizes(options: Options) -> tuple[int, ...]:
    return (1, 2, 4, 8, 16, 32, 64) if options.full else (1, 4)


def onnxruntime_steps(options: Options) -> Mapping[str, Any]:
    """Our engine on ONNX Runtime: its logits beside the processor's, and its rates."""
    require_onnxruntime(options)
    import numpy as np

    from trimodal.vision.artefact import read_classifier
    from trimodal.vision.engines.protocol import ImageClassifier, open_engine
    from trimodal.vision.settings import VisionSettings

    directory = provide(options, "vision")
    read = read_classifier(directory)
    shape = (max(sizes(options)), 3, read.input.height, read.input.width)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)

    def opened(batches: tuple[int, ...], **changes: Any) -> ImageClassifier:
        given = {"artefact": str(directory), "device": options.device, "warm_up_batch_sizes": batches}
        return open_engine(read, VisionSettings.model_validate(given | changes))

    engine, theirs = opened(sizes(options)), opened((1, 4), device="cpu")
    errors = []
    for batch in (1, 3):  # alone, and filled up to a size
        wanted = theirs.classify(pixels[:batch])
        errors.append(np.abs(engine.classify(pixels[:batch]) - wanted).max() / np.abs(wanted).max())
    worst = float(np.max(errors))  # NaN stays, which max() may drop
    if not worst <= MOST_ERROR:
        raise ArtefactError(f"not the answers of the processor: logits differ by {worst:.4f} of the largest")
    found: dict[str, Any] = {"relative_error": worst}
    found |= options.sweep("engine", sizes(options), lambda batch: partial(engine.classify, pixels[:batch]))
    return found


def tensorrt_steps(options: Options) -> Mapping[str, Any]:
    """A TensorRT plan, built here from the ONNX graph in FP16 and run in torch's memory."""
    import numpy as np

    directory = provide(options, "vision-plan")
    sys.path.insert(0, str(BUILD))
    from steps.vision.plan_check import plan_runner

    from trimodal.manifest import read_manifest

    manifest = read_manifest(directory, task="vision", runtime="tensorrt")
    run = plan_runner(directory / "model.plan", manifest.shapes["classes"])
    (shapes,) = manifest.profiles[0].values()
    pixels = np.random.default_rng(0).integers(0, 256, (64, *shapes.opt[1:]), dtype=np.uint8)
    most = min(64, shapes.max[0])
    fitting = [size for size in sizes(options) if size <= most]
    return options.sweep("plan", fitting, lambda batch: partial(run, pixels[:batch]))


BUILT = ("torch", "onnxruntime", "onnx", "onnxscript", "safetensors", "pydantic")
"""What building the ONNX graph and opening it need."""

STEPS = (
    Step("onnxruntime", onnxruntime_steps, BUILT),
    Step("tensorrt", tensorrt_steps, (*BUILT, "tensorrt"), gpu=True),
)
