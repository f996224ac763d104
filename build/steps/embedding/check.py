"""Compares a built embedder's graph with torch, on texts short and long, plain and odd, alone and padded.

FP16 graphs are run twice: as they are, which ONNX Runtime computes in FP32 on CPUs, and with every tensor
rounded to FP16 (`steps/onnx/rounding.py`), which is what a GPU does to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
from steps.artefact import refuse_errors
from steps.embedding.checkpoint import OUTPUT, Inputs, encode
from steps.onnx.rounding import rounded

from trimodal.errors import ArtefactError

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

Vectors = npt.NDArray[np.float32]
SENTENCES = (
    "How do I open a file in Python?",
    "What is the way to read a file?",
    "Disable the cache.",
    "Trains from Paris to London leave every hour.",
    "Café, naïve, 日本語, Ελλάδα and 😀.",
    "x",
    "Numbers: 1, 22, 333, 4,444 and 5.5e5; signs: @ # % & * ( ) [ ] { }.",
    "One moment. " * 30,
    "A text that is longer than the model can read is cut at its limit. " * 40,
)


def run_torch(model: torch.nn.Module, inputs: Inputs) -> Vectors:
    """Unit vectors float32[N, d]."""
    import torch

    with torch.inference_mode():
        vectors = model(**{name: torch.from_numpy(value) for name, value in inputs.items()})
    return np.asarray(vectors.numpy(), np.float32)


def compare(
    path: Path, tokenizer: Tokenizer, inputs: Inputs, reference: Vectors, precision: str
) -> dict[str, Any]:
    """Figures of ONNX Runtime's vectors against torch's; and one text alone against itself in the batch."""
    vectors = _run(path.read_bytes(), inputs)
    alone = _run(path.read_bytes(), encode(tokenizer, SENTENCES[:1]))
    figures: dict[str, Any] = {
        "texts": len(vectors),
        "relative_error": _relative(vectors, reference),
        "min_cosine": float((vectors * reference).sum(1).min()),
        "cosine_alone_to_padded": float(alone[0] @ vectors[0]),
    }
    if precision == "fp16":
        model = onnx.load(path)
        halves = _run(rounded(model).SerializeToString(), inputs)
        figures["relative_error_rounded"] = _relative(halves, reference)
        figures["min_cosine_rounded"] = float((halves * reference).sum(1).min())
    return figures


def judge(name: str, precision: str, figures: dict[str, Any], min_cosine: float) -> None:
    """Raises: ArtefactError where a figure is out of bounds."""
    refuse_errors(name, precision, figures, ("relative_error", "relative_error_rounded"))
    for key in ("min_cosine", "min_cosine_rounded"):
        if not figures.get(key, 1.0) >= min_cosine:
            raise ArtefactError(
                f"{name} not written: the lowest cosine with torch, {figures[key]:.4f}, "
                f"is below --min-cosine {min_cosine}"
            )


def _relative(vectors: Vectors, reference: Vectors) -> float:
    return float(np.linalg.norm(vectors - reference) / np.linalg.norm(reference))


def _run(model: bytes, inputs: Inputs) -> Vectors:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([OUTPUT], inputs)[0], np.float32)
