"""Compares Whisper's plans with the torch engine whose network they were built from: numbers, then words.

Both run the same decode loop, torch's modules on the processor; build/speech_torch.py has compared those with
transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from steps.limits import hold_error
from steps.speech.check import agreement, hear
from steps.tensorrt import run

from trimodal.audio.values import Samples
from trimodal.build_support import progress
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest
from trimodal.speech.engines.protocol import SpeechEngine
from trimodal.speech.engines.tensorrt import engine as tensorrt_engine
from trimodal.speech.engines.torch import engine as torch_engine
from trimodal.speech.engines.torch.loop import DeviceGraphs
from trimodal.speech.values import Window
from trimodal.speech.whisper.artefact import SpeechShapes
from trimodal.speech.whisper.features import FRAMES_PER_S, Features
from trimodal.speech.whisper.graphs import Floats

# Same network, other kernels: they round and add up in another order.
MAX_ERROR = {"fp32": 1e-3, "fp16": 1e-2}
# An opening in two parts, then token by token: all profiles of the decoder.
OPENING, STEPS = (4, 3), 6


def compare_numbers(
    plans: tuple[Path, Manifest], weights: tuple[Path, Manifest], shapes: SpeechShapes, batches: Sequence[int]
) -> dict[str, Any]:
    """Largest relative errors of logits and attention over contexts and batch sizes.

    Raises:
        ArtefactError: 10 times what another order of rounding explains, or the plans do not run.
    """
    precision = plans[1].precision
    try:
        errors = _errors(plans, weights, shapes, sorted(set(batches)))
    except RuntimeError as error:  # TensorRT's refusals, torch's out of memory, CUDA's own.
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtefactError(f"the plans were built and do not run ({reason}): nothing was replaced") from None
    figures: dict[str, Any] = {f"{name}_relative_error": size for name, size in errors.items()}
    for key in list(figures):
        who = f"nothing was replaced: the plans' {key.partition('_')[0]}"
        hold_error(figures, key, MAX_ERROR[precision], None, who=who, whose="their network's")
    return figures | {"batches": sorted(set(batches))}


def compare_words(engines: tuple[SpeechEngine, SpeechEngine], audio: list[Samples]) -> dict[str, Any]:
    """Agreement of the words that two engines make of windows of audio; closes both."""
    windows = [Window(samples, engines[0].languages[0]) for samples in audio]
    expected, found = (hear(engine, windows, "Hearing the audio") for engine in engines)
    return {"windows": len(windows), "word_agreement": agreement(expected, found)}


def _errors(
    plans: tuple[Path, Manifest], weights: tuple[Path, Manifest], shapes: SpeechShapes, sizes: list[int]
) -> dict[str, float]:
    frames = [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
    expected = torch_engine.open_graphs(*weights, shapes, tuple(sizes), device="cpu")
    found = tensorrt_engine.open_graphs(*plans, shapes, sizes[-1], device=run.DEVICE)
    random = np.random.default_rng(0)
    errors = {"logits": 0.0, "alignment": 0.0}
    try:
        title = "Comparing the plans with their network"
        with progress(title, total=len(sizes) * len(frames)) as advance:
            for rows in sizes:
                for length in frames:
                    features = random.standard_normal((rows, shapes.mel_bins, length), np.float32) / 2
                    tokens = random.integers(0, found.vocabulary, (rows, sum(OPENING) + STEPS))
                    both = [_decode(graphs, features, tokens) for graphs in (found, expected)]
                    for name, one, other in zip(errors, *both, strict=True):
                        error = _relative(one, other)
                        errors[name] = float(np.maximum(errors[name], error))  # NaN stays, max() drops it
                    advance()
    finally:
        found.close()
        expected.close()
    return errors


def _decode(graphs: DeviceGraphs, features: Features, tokens: Any) -> tuple[Floats, Floats]:
    """Logits within the opening and after every token after it; attention of those tokens."""
    decoding = graphs.start(features)
    first, second = OPENING
    logits, attention = [decoding.open(tokens[:, :first], 0)], []
    decoding.follow(tokens[:, first : first + second])
    for at in range(first + second, tokens.shape[1]):
        scores, weights = decoding.step(tokens[:, at : at + 1])
        logits.append(scores)
        attention.append(weights)
    return np.stack(logits), np.stack(attention)


def _relative(found: Floats, expected: Floats) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
