"""Compares Whisper's plans with the graphs that they were built from: numbers of every profile, then words.

The graphs run on ONNX Runtime's CPU provider; build/speech_onnx.py has compared them with torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from steps.speech.check import agreement, hear
from steps.tensorrt import run

from trimodal.audio.values import Samples
from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.speech.engines.onnxruntime import WhisperGraphs
from trimodal.speech.engines.protocol import SpeechEngine
from trimodal.speech.engines.tensorrt.graphs import TensorRTGraphs
from trimodal.speech.values import Window
from trimodal.speech.whisper.artefact import SpeechShapes
from trimodal.speech.whisper.features import FRAMES_PER_S
from trimodal.speech.whisper.graphs import Decoding, Floats

# Same graph, other kernels: they round and add up in another order.
MAX_ERROR = {"fp32": 1e-3, "fp16": 1e-2}
# An opening in two parts, then token by token, rows dropped on the way: both profiles of the decoder.
STEPS = (1, 3, 1, 1, 1, 1)


def compare_numbers(
    plans: Path, graphs: Path, shapes: SpeechShapes, batches: Sequence[int], precision: str
) -> dict[str, Any]:
    """Largest relative errors of logits and attention over contexts and batch sizes.

    Raises:
        ArtefactError: larger than another order of rounding explains, or the plans do not run.
    """
    try:
        errors = _errors(plans, graphs, shapes, sorted(set(batches)))
    except RuntimeError as error:  # TensorRT's refusals, torch's out of memory, CUDA's own.
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtefactError(f"the plans were built and do not run ({reason}): nothing was replaced") from None
    for name, size in errors.items():
        if not size <= MAX_ERROR[precision]:  # so that NaN is above every limit
            raise ArtefactError(
                f"the plans differ from their graphs ({name}: {size:.2g} relative, at most "
                f"{MAX_ERROR[precision]:g}): nothing was replaced"
            )
    figures: dict[str, Any] = {f"{name}_relative_error": size for name, size in errors.items()}
    return figures | {"batches": sorted(set(batches))}


def compare_words(engines: tuple[SpeechEngine, SpeechEngine], audio: list[Samples]) -> dict[str, Any]:
    """Agreement of the words that two engines make of windows of audio; closes both."""
    windows = [Window(samples, engines[0].languages[0]) for samples in audio]
    expected, found = (hear(engine, windows, "Hearing the audio") for engine in engines)
    return {"windows": len(windows), "word_agreement": agreement(expected, found)}


def _errors(plans: Path, graphs: Path, shapes: SpeechShapes, sizes: list[int]) -> dict[str, float]:
    frames = [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
    expected = WhisperGraphs(graphs, device="cpu", threads=0)
    found = TensorRTGraphs(
        plans, max_batch=sizes[-1], frames=frames[-1], places=shapes.positions, device=run.DEVICE
    )
    random = np.random.default_rng(0)
    errors = {"logits": 0.0, "alignment": 0.0}
    try:
        with progress("Comparing the plans with their graphs", total=len(sizes) * len(frames)) as advance:
            for rows in sizes:
                for length in frames:
                    features = random.standard_normal((rows, shapes.mel_bins, length), np.float32) / 2
                    tokens = random.integers(0, found.vocabulary, (rows, sum(STEPS)))
                    both: tuple[Decoding, Decoding] = expected.start(features), found.start(features)
                    for name, error in _decode(both, tokens).items():
                        errors[name] = float(np.maximum(errors[name], error))  # NaN stays, max() drops it
                    advance()
    finally:
        found.close()
        expected.close()
    return errors


def _decode(both: tuple[Decoding, Decoding], tokens: Any) -> dict[str, float]:
    errors = {"logits": 0.0, "alignment": 0.0}
    done = 0
    for number, count in enumerate(STEPS):
        (expected, aligned), (found, weights) = (each.step(tokens[:, done : done + count]) for each in both)
        done += count
        for name, other, right in (
            ("logits", found.numpy(), expected.numpy()),
            ("alignment", weights, aligned),
        ):
            errors[name] = float(np.maximum(errors[name], _relative(other, right)))
        if number == len(STEPS) // 2 and len(tokens) > 1:
            kept = list(range(1, len(tokens), 2))  # Not the first: rows move.
            for each in both:
                each.keep(kept)
            tokens = tokens[kept]
    return errors


def _relative(found: Floats, expected: Floats) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
