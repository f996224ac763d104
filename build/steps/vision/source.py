"""Opens the checkpoint that build/vision_onnx.py builds from: graph, images, answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from steps.artefact import count_weights, source_name
from steps.vision.check import batched
from steps.vision.classifier import GRAPH, Classifier, read_classifier
from steps.vision.export import from_onnx, from_torch
from steps.vision.exported import read_graph, refuse_probabilities
from steps.vision.images import ImageSet, load_images, normalised

from trimodal.build_support import resolve_checkpoint
from trimodal.manifest import checkpoint_sha256
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Logits, Pixels


@dataclass(frozen=True)
class Source:
    """`graph` makes the FP32 graph of bytes, of at least the opset it is given. `reference` are the logits of
    the images in `evaluation`, of `against` (torch, or ONNX Runtime on the graph as it was given)."""

    architecture: str
    input: InputSpec
    labels: list[str]
    name: str
    digest: str
    graph: Callable[[int], onnx.ModelProto]
    calibration: ImageSet
    evaluation: ImageSet
    reference: Logits
    against: str
    weights: int
    random_weights: bool = False


def from_checkpoint(source: str, images_from: Path | None) -> Source:
    """A directory, a checkpoint of the starter set or a hub id; images of a folder or the project's."""
    directory = resolve_checkpoint(source)
    name, digest = source_name(source), checkpoint_sha256(directory)
    if not (directory / GRAPH).is_file():
        classifier = read_classifier(directory)
        return _of_network(classifier, name, digest, load_images(images_from, classifier.input))
    given, spec, labels, told = read_graph(directory)
    calibration, evaluation = load_images(images_from, spec)
    if told:
        pixels, logits = told
        evaluation, against = ImageSet(pixels, "reference.npz"), "torch"
    else:
        logits, against = _of_graph(given, evaluation.pixels, spec), "ONNX Runtime"
    refuse_probabilities(directory / GRAPH, logits)
    graph = partial(from_onnx, given, spec)
    weights = sum(math.prod(one.dims) for one in given.graph.initializer)
    return Source(
        "onnx", spec, labels, name, digest, graph, calibration, evaluation, logits, against, weights
    )


def _of_network(classifier: Classifier, name: str, digest: str, images: tuple[ImageSet, ImageSet]) -> Source:
    calibration, evaluation = images

    # Normalised outside of the graph: the check covers the graph's own normalisation too.
    def run(pixels: Pixels) -> Logits:
        with torch.inference_mode():
            logits = classifier.network(torch.from_numpy(normalised(pixels, classifier.input)))
        return np.asarray(logits.numpy(), np.float32)

    reference = batched(run, evaluation.pixels, "torch reference")
    return Source(
        classifier.architecture,
        classifier.input,
        classifier.labels,
        name,
        digest,
        partial(from_torch, classifier.network, classifier.input),
        calibration,
        evaluation,
        reference,
        "torch",
        count_weights(classifier.network),
        classifier.random_weights,
    )


def _of_graph(model: onnx.ModelProto, pixels: Pixels, spec: InputSpec) -> Logits:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    name = model.graph.input[0].name

    def run(pixels: Pixels) -> Logits:
        return np.asarray(session.run(None, {name: normalised(pixels, spec)})[0], np.float32)

    return batched(run, pixels, "reference: the graph as given")
