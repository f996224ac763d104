"""Compares a built classifier's graph with what it was built from, by numbers, at several batch sizes.

FP16 graphs are run twice: as they are, which ONNX Runtime computes in FP32 on CPUs, and with every tensor
rounded to FP16 (`steps/onnx/rounding.py`), which is what a GPU does to them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from steps.artefact import refuse_errors
from steps.onnx.rounding import rounded
from steps.vision.export import INPUT, OUTPUT
from steps.vision.images import ImageSet

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.vision.engines.protocol import Logits, Pixels
from trimodal.vision.rank import softmax

BATCH = 16
SURE = 0.4  # the reference's best score from which another label counts as wrong
FEWEST_SURE = 10  # images; random weights are sure of nothing
ALL_AGREEMENT, SURE_AGREEMENT = AGREEMENTS = ("top1_agreement", "top1_agreement_where_sure")
NEXT_STEP_OF_FLOATS = "the export is at fault; please report it"
NEXT_STEP = {
    "fp16": "--precision fp32",
    "int8": "try --images with 128 to 512 pictures like those to be served, --keep-float 3, or serve "
    "--precision fp32",
    "int8-gpu": "try --images with 128 to 512 pictures like those to be served, or --precision fp16",
    "fp8": "try --images with 128 to 512 pictures like those to be served, or --precision fp16",
}
FOR_TENSORRT = ("fp16", "int8-gpu", "fp8")
Run = Callable[[Pixels], Logits]


def compare(
    path: Path, images: ImageSet, reference: Logits, precision: str, max_batch: int
) -> dict[str, Any]:
    """Figures of the graph in `path` on ONNX Runtime against `reference`, for the manifest."""
    run = runner(path.read_bytes(), as_written=precision in FOR_TENSORRT)
    logits = batched(run, images.pixels, f"{precision}: check")
    figures: dict[str, Any] = {"images": len(logits), "images_from": images.origin}
    figures |= distance(logits, reference)
    with progress(f"{precision}: batches of 1, 3 and {max_batch}"):
        figures["batch_change"] = batch_change(run, images.pixels, logits, max_batch)
    if precision == "int8":  # for CPUs: with zero points, which TensorRT does not take
        return figures
    model = onnx.load(path)
    if precision in FOR_TENSORRT:
        run = runner(rounded(model).SerializeToString(), as_written=True)
        halves = batched(run, images.pixels, f"{precision}: every tensor rounded to FP16")
        found = distance(halves, reference)
        figures |= {
            f"{name}_rounded": found[name] for name in ("relative_error", *AGREEMENTS) if name in found
        }
    return figures


def judge(name: str, precision: str, figures: dict[str, Any], min_agreement: float) -> None:
    """Holds the figures against their bounds: agreement where the reference is sure, else (random weights,
    that are sure of nothing) on all images.

    Raises:
        ArtefactError: a figure is out of bounds; what to do next.
    """
    refuse_errors(name, precision, figures, ("relative_error", "relative_error_rounded", "batch_change"))
    chosen = SURE_AGREEMENT if figures.get("sure_images", 0) >= FEWEST_SURE else ALL_AGREEMENT
    for key in (chosen, f"{chosen}_rounded"):
        if figures.get(key, 1.0) < min_agreement:
            where = f"the {figures['sure_images']} images where the reference is above {SURE:g}"
            raise ArtefactError(
                f"{name} not written: the same label on {figures[key]:.1%} of "
                f"{where if chosen == SURE_AGREEMENT else 'all images'}, below --min-agreement "
                f"{min_agreement:g}: {NEXT_STEP.get(precision, NEXT_STEP_OF_FLOATS)}"
            )


def batched(run: Run, pixels: Pixels, title: str) -> Logits:
    """`run` over slices of the batch, put together again."""
    parts = []
    with progress(title, len(pixels)) as advance:
        for start in range(0, len(pixels), BATCH):
            parts.append(run(pixels[start : start + BATCH]))
            advance(len(parts[-1]))
    return np.concatenate(parts)


def batch_change(run: Run, pixels: Pixels, logits: Logits, max_batch: int) -> float:
    """The largest relative error of an image's logits when it comes alone, with two others, or in a full
    batch, which repeats the images where there are fewer.
    """
    worst = 0.0
    for size in sorted({1, 3, max_batch}):
        chosen = np.arange(size) % len(pixels)
        found, expected = run(pixels[chosen]), logits[chosen]
        error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
        worst = float(np.maximum(worst, error.max()))  # NaN stays; max() would drop it.
    return worst


def distance(logits: Logits, reference: Logits) -> dict[str, float]:
    error = np.abs(logits - reference)
    same = logits.argmax(1) == reference.argmax(1)
    expected = softmax(reference)
    sure = expected.max(1) >= SURE
    figures = {
        "max_error": float(error.max()),
        "max_score_error": float(np.abs(softmax(logits) - expected).max()),
        "relative_error": float(np.linalg.norm(error) / np.linalg.norm(reference)),
        ALL_AGREEMENT: float(same.mean()),
        "sure_images": int(sure.sum()),
    }
    return figures | ({SURE_AGREEMENT: float(same[sure].mean())} if sure.any() else {})


def runner(model: bytes, *, as_written: bool) -> Run:
    """Runs a graph with ONNX Runtime on the CPU. `as_written`: Q/DQ as they stand, for graphs for GPUs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if as_written:
        # Else it makes integer kernels of Q/DQ and quantises biases, which TensorRT does not; and its last
        # level, which lays tensors out for the CPU, gets FP8 between casts wrong (1.31).
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(pixels: Pixels) -> Logits:
        (logits,) = session.run([OUTPUT], {INPUT: pixels})
        return np.asarray(logits, np.float32)

    return run
