"""Opens what build/vision_onnx.py builds from, a checkpoint or random weights: graph, images, answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from steps.artefact import source_name
from steps.vision.check import batched
from steps.vision.checkpoint import EXPORTED, CheckpointConfig, load_graph, load_model, read_config
from steps.vision.export import from_onnx, from_torch
from steps.vision.images import ImageSet, load_images, normalised, random_images
from steps.vision.models import Model, random_model

from trimodal.build_support import progress, resolve_checkpoint
from trimodal.manifest import checkpoint_sha256
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Logits, Pixels


@dataclass(frozen=True)
class Source:
    """`graph` makes the FP32 graph of bytes, of at least the opset it is given. `reference` are the logits of
    the images in `evaluation`, of `against` (torch, or ONNX Runtime on the graph as it was given)."""

    config: CheckpointConfig
    name: str
    digest: str
    graph: Callable[[int], onnx.ModelProto]
    calibration: ImageSet | None
    evaluation: ImageSet
    reference: Logits
    against: str


def from_random(architecture: str) -> Source:
    """A real shape with random weights (seed 0), and made-up images."""
    spec = InputSpec(height=224, width=224, resize="crop", resize_to=256)
    config = CheckpointConfig(architecture=architecture, num_classes=1000, input=spec)
    seen = normalised(random_images(spec, 32, seed=0).pixels, spec)
    with progress("random weights: batch statistics"):
        model = random_model(architecture, spec, seen)
    name = f"{architecture} with random weights (seed 0)"
    images = random_images(spec, 128, seed=1), random_images(spec, 64, seed=2)
    return _of_model(config, name, "none", model, *images)


def from_checkpoint(source: str, calibration_from: Path | None) -> Source:
    """A checkpoint directory or hub id; `calibration_from` comes before its own calibration.npz."""
    directory = resolve_checkpoint(source)
    config = read_config(directory)
    name = source_name(directory, source)
    own = {name: directory / f"{name}.npz" for name in ("calibration", "evaluation")}
    calibration = evaluation = None
    if calibration_from or own["calibration"].is_file():
        calibration = load_images(calibration_from or own["calibration"], config.input)
    if own["evaluation"].is_file():
        evaluation = load_images(own["evaluation"], config.input)
    evaluation = evaluation or calibration or random_images(config.input, 64, seed=2)
    digest = checkpoint_sha256(directory)
    if config.architecture != EXPORTED:
        model = load_model(directory, config)
        return _of_model(config, name, digest, model, calibration, evaluation)
    given, told = load_graph(directory, config)
    if told:
        pixels, logits = told
        evaluation, against = ImageSet(pixels, None, "reference.npz"), "torch"
    else:
        logits, against = _of_graph(given, evaluation.pixels, config.input), "ONNX Runtime"

    graph = partial(from_onnx, given, config.input)
    return Source(config, name, digest, graph, calibration, evaluation, logits, against)


def _of_model(
    config: CheckpointConfig,
    name: str,
    digest: str,
    model: Model,
    calibration: ImageSet | None,
    evaluation: ImageSet,
) -> Source:
    # Normalised outside of the graph: the check covers the graph's own normalisation too.
    def run(pixels: Pixels) -> Logits:
        with torch.inference_mode():
            logits = model(torch.from_numpy(normalised(pixels, config.input)))
        return np.asarray(logits.numpy(), np.float32)

    reference = batched(run, evaluation.pixels, "torch reference")
    graph = partial(from_torch, model, config.input)
    return Source(config, name, digest, graph, calibration, evaluation, reference, "torch")


def _of_graph(model: onnx.ModelProto, pixels: Pixels, spec: InputSpec) -> Logits:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    name = model.graph.input[0].name

    def run(pixels: Pixels) -> Logits:
        return np.asarray(session.run(None, {name: normalised(pixels, spec)})[0], np.float32)

    return batched(run, pixels, "reference: the graph as given")
