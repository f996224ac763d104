"""Classifies images with ONNX Runtime, on the processor or the GPU: FP32, FP16 or INT8 (QDQ) `model.onnx`."""

from __future__ import annotations

import numpy as np

from trimodal.errors import ArtefactError
from trimodal.runtimes.onnx_runner import Runner, open_model
from trimodal.vision.artefact import ClassifierArtefact
from trimodal.vision.engines.protocol import Logits, Pixels
from trimodal.vision.settings import VisionSettings

_FEWEST_ROWS, _ROWS_PER_THREAD = 4, 2  # of a run on the processor


class OnnxRuntimeClassifier:
    """One session; calls may come from several threads."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def classify(self, pixels: Pixels) -> Logits:
        """Logits float32[B, C] of pixels uint8[B, 3, H, W]."""
        return self._runner.run({"pixels": pixels}, "logits").astype(np.float32, copy=False)


def open_engine(artefact: ClassifierArtefact, settings: VisionSettings) -> OnnxRuntimeClassifier:
    """Runs `model.onnx` of the artefact's directory; on CUDA each warm-up size gets a session of its own.

    Raises ArtefactError: FP8, of another checkpoint, or refused by ONNX Runtime; ServerError: no CUDA.
    """
    if artefact.manifest.precision == "fp8":
        # Its optimiser gets FP8 between casts wrong on a processor, without an error (1.31).
        raise ArtefactError(
            f"{artefact.directory} is an FP8 graph, which only TensorRT runs: build one for this engine with "
            f"trimodal build vision {artefact.manifest.source} --precision fp16"
        )
    sizes = settings.warm_up_batch_sizes
    # ONNX Runtime keeps the memory of the largest run for good: 0.4 GB of 16 images of EfficientNet-Lite0.
    # On two threads 16 at once are not quicker than four times four.
    rows = max(_FEWEST_ROWS, _ROWS_PER_THREAD * settings.threads)
    return OnnxRuntimeClassifier(open_model(artefact.directory, artefact.manifest, settings, sizes, rows))
