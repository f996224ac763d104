"""Builds Whisper models as ONNX graphs: checkpoint → encoder.onnx and decoder.onnx for ONNX Runtime.

    python build/speech_onnx.py openai/whisper-base --precision fp32 --precision fp16 --precision int8

The graphs' names, shapes and types are in build/steps/speech/onnx_export.py. They are compared with torch
number by number, then every artefact on audio, before it replaces an older one; FP16 with every tensor
rounded, as a GPU does.
"""

from __future__ import annotations

import tempfile
from enum import Enum
from pathlib import Path
from typing import Any

import onnxruntime
import typer
from steps.speech import build
from steps.speech.audio import DEMO_SAMPLES
from steps.speech.check import compare, compare_words
from steps.speech.checkpoint import Checkpoint
from steps.speech.onnx_check import largest_errors, refuse_wrong, runtime
from steps.speech.onnx_export import OPSET, export
from steps.speech.onnx_files import write_graphs, write_rounded

from trimodal.build_support import operator_errors, progress, report


class Precision(str, Enum):
    fp32 = "fp32"
    fp16 = "fp16"
    int8 = "int8"


def main(
    source: build.Source,
    precision: list[Precision] = typer.Option(
        ["fp32"],
        help="repeat it to build several; fp16: for GPUs; int8: for processors, weights, and activations as "
        "they come (no calibration)",
    ),
    name: build.Name = "onnx-{precision}",
    out: build.Out = "",
    contexts: build.Contexts = "",
    padding: build.Padding = "",
    audio: build.Audio = DEMO_SAMPLES,
    language: build.Language = "",
    min_agreement: build.MinAgreement = None,
) -> None:
    """Export SOURCE to ONNX, compare it with torch, and put it in place."""
    with operator_errors():
        made = build.prepare(source, precision, name, out, contexts, padding, audio, language)
        folder = next(iter(made.targets.values())).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch:
            graphs = Path(scratch)
            with progress("Exporting"):
                export(made.checkpoint, graphs)
            errors = check_graphs(made, graphs, "fp32", "FP32 graphs against torch")
            made.put_in_place(
                "speech_onnx",
                {"runtime": "onnxruntime", "runtime_version": onnxruntime.__version__},
                extra(made.checkpoint),
                lambda work, precision: write_graphs(graphs, work, precision),
                lambda work, precision: check(made, work, precision, {"fp32_graphs": errors}),
                min_agreement,
            )


def check_graphs(made: build.Prepared, directory: Path, precision: str, title: str) -> dict[str, float]:
    """Largest errors on random tensors. Raises: ArtefactError where the graphs compute something else."""
    errors = largest_errors(made.checkpoint, directory, made.contexts_s)
    report(title, errors)
    refuse_wrong(errors, precision)
    return errors


def check(
    made: build.Prepared, directory: Path, precision: str, graphs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of the written graphs on audio, and `graphs` with those of FP16 ones on random tensors."""
    checkpoint = made.checkpoint
    with tempfile.TemporaryDirectory(prefix=".rounded-", dir=directory.parent) as scratch:
        measured = directory
        if precision == "fp16":
            measured = Path(scratch)
            write_rounded(directory, measured)
            title = "FP16 graphs against torch, every tensor rounded"
            graphs = graphs | {"fp16_graphs": check_graphs(made, measured, "fp16", title)}
        figures = compare(checkpoint, made.heard, *runtime(measured, checkpoint))
    words = compare_words(made.heard, directory, "onnxruntime", random_weights=checkpoint.random_weights)
    return figures | words, graphs


def extra(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the engine needs beside the graphs, for the manifest."""
    never, not_first = checkpoint.suppressed()
    return checkpoint.described() | {"suppressed": never, "suppressed_first": not_first, "opset": OPSET}


if __name__ == "__main__":
    typer.run(main)
