"""Compares a classifier's plan with the graph it was built from, on the same pixels, at every kind of batch.

The graph runs on ONNX Runtime's CPU provider; how far that is from torch, the graph's own check says
(build/vision_onnx.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from steps.artefact import reason
from steps.limits import hold_agreement, hold_error
from steps.tensorrt import plan as tensorrt_plan
from steps.vision.check import Run, batched, runner
from steps.vision.export import INPUT, OUTPUT
from steps.vision.images import load_images

from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange
from trimodal.runtimes.tensorrt_session import Runtime, TensorRTSession, stream
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Logits, Pixels

IMAGES = 64
BATCHES = 8  # of each size
# Same graph, other kernels: they round and accumulate in another order, and INT8 and FP8 snap to other steps.
MAX_ERROR = {"fp32": 1e-3, "fp16": 1e-2, "int8": 5e-2, "fp8": 5e-2}
MIN_AGREEMENT = 0.95
Floats = NDArray[np.float32]


def compare_plan(
    plan: Path,
    graph: Path,
    spec: InputSpec,
    batches: InputRange,
    precision: str,
    options: argparse.Namespace,
    *,
    random_weights: bool,
) -> dict[str, Any]:
    """Figures of the plan's logits against the graph's, the worst of all batch sizes.

    Raises:
        ArtefactError: they differ by more than --max-error, or agree on fewer images than --min-agreement;
            without these, by 10 times what is usual, or on less than half of it.
    """
    _, images = load_images(options.images, spec)
    pixels = images.pixels[:IMAGES]
    reference = batched(runner(graph.read_bytes(), as_written=True), pixels, "the graph's own logits")
    try:
        compared = _compared(plan_runner(plan, reference.shape[1]), batches, pixels, reference)
    except RuntimeError as error:  # TensorRT's refusals, torch's out of memory, CUDA's own
        raise ArtefactError(
            f"the plan was built and does not run ({reason(error)}): it is not written"
        ) from None
    figures: dict[str, Any] = {
        "images": len(pixels),
        "images_from": images.origin,
        "batches": sorted(compared),
        "relative_error": float(np.max([error for error, _ in compared.values()])),
        "top1_agreement": min(agreement for _, agreement in compared.values()),
    }
    who = "the plan is not written: its logits"
    usual = MAX_ERROR[precision]
    hold_error(figures, "relative_error", usual, options.max_error, who=who, option="--max-error")
    # Random weights: nothing stands out, and the least rounding turns the order of logits.
    usual = 0.0 if random_weights else MIN_AGREEMENT
    who = "the plan is not written: its best classes agree with the graph's"
    hold_agreement(figures, "top1_agreement", usual, options.min_agreement, who=who)
    return figures


def plan_runner(plan: Path, classes: int) -> Run:
    """Runs a plan on this machine's GPU. Raises: TensorRTError, as a run of it does: it is refused."""
    import torch

    session = TensorRTSession(plan, Runtime())

    def run(pixels: Pixels) -> Logits:
        given = torch.from_numpy(np.ascontiguousarray(pixels)).to(tensorrt_plan.DEVICE)
        logits = torch.empty((len(pixels), classes), device=given.device)
        session.run(len(pixels), {INPUT: given, OUTPUT: logits}, stream(given))
        return np.asarray(logits.cpu().numpy(), np.float32)

    return run


def _compared(
    compiled: Run, batches: InputRange, pixels: Pixels, reference: Floats
) -> dict[int, tuple[float, float]]:
    """Size of the batch → relative error, and share of equal best classes."""
    found = {}
    sizes = sorted({shape[0] for shape in (batches.min, batches.opt, batches.max)})
    with progress("check against the graph", len(sizes)) as advance:
        for size in sizes:
            # A batch that is larger than the set takes images twice.
            count = max(1, min(BATCHES, len(pixels) // size)) * size
            rows = np.arange(count) % len(pixels)
            starts = range(0, count, size)
            parts = [compiled(pixels[rows[at : at + size]]) for at in starts]
            logits = np.concatenate(parts)
            expected = reference[rows]
            error = float(np.linalg.norm(logits - expected) / np.linalg.norm(expected))
            found[size] = error, float((logits.argmax(1) == expected.argmax(1)).mean())
            advance()
    return found
