"""Measures a sentence embedder of MiniLM's shape in ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_check.artefacts import provide
from benchmarks.gpu_check.steps import Options, Step, require_onnxruntime
from trimodal.errors import ArtefactError

LEAST_COSINE = 0.999


def texts(words: int, count: int) -> list[str]:
    """Different texts of so many words, the same in every run."""
    rng = random.Random(words)
    return [" ".join(f"word{rng.randrange(500)}" for _ in range(words)) for _ in range(count)]


def onnxruntime_steps(options: Options) -> Mapping[str, Any]:
    """Our engine on ONNX Runtime in this process, its vectors compared with the processor's first."""
    require_onnxruntime(options)
    from trimodal.embedding.engines.protocol import open_engine
    from trimodal.embedding.settings import EmbeddingSettings

    directory = provide(options, "embedding")
    asked = [text for words in (1, 16, 120, 400) for text in texts(words, 16)]
    engine, theirs = (
        open_engine(directory, EmbeddingSettings(artefact=str(directory), device=each))
        for each in (options.device, "cpu")
    )
    lowest = float((engine.embed(asked).vectors * theirs.embed(asked).vectors).sum(1).min())
    if not lowest >= LEAST_COSINE:
        raise ArtefactError(f"not the processor's answers: a text's vectors have a cosine of {lowest:.4f}")
    sizes = (1, 8, 32, 64) if options.full else (1, 4)
    cases = options.sweep("engine", sizes, lambda batch: partial(engine.embed, texts(16, batch)))
    return {"lowest_cosine": lowest, **cases}


BUILT = (
    "torch",
    "onnxruntime",
    "onnx",
    "onnxscript",
    "transformers",
    "tokenizers",
    "safetensors",
    "pydantic",
)
"""What building the ONNX graph and opening it need."""

STEPS = (Step("onnxruntime", onnxruntime_steps, BUILT),)
