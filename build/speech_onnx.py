"""Builds Whisper models as ONNX graphs: checkpoint → encoder.onnx and decoder.onnx for ONNX Runtime.

    python build/speech_onnx.py openai/whisper-base --precision fp32 --precision fp16 --precision int8

The graphs' names, shapes and types are in build/steps/speech/onnx_export.py; build/speech_tensorrt.py
compiles FP16 and FP32 ones. They are compared with torch number by number, then every artefact on audio,
before it replaces an older one; FP16 with every tensor rounded, as a GPU does.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnxruntime
import typer
from steps.speech.audio import DEMO_SAMPLES, read_recordings
from steps.speech.check import Reference, compare, compare_words, judge, reference, target
from steps.speech.checkpoint import Checkpoint, load, parse_contexts
from steps.speech.onnx_check import largest_errors, refuse_wrong, runtime
from steps.speech.onnx_export import OPSET, export
from steps.speech.onnx_files import Precision, write_graphs, write_rounded

from trimodal.build_support import build_command, operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest


def main(
    source: str = typer.Argument(..., help="checkpoint directory or hub id of a Whisper"),
    precision: list[Precision] = typer.Option(
        ["fp32"],
        help="repeat it to build several; fp16: for GPUs; int8: for processors, weights, and activations as "
        "they come (no calibration)",
    ),
    name: str = typer.Option("onnx-{precision}", help="directory under model_repository/speech_recognize/1"),
    out: str = typer.Option("", help="directory of the artefact, in place of --name"),
    contexts: str = typer.Option(
        "",
        help="encoder lengths in seconds, as 5,10,30, in place of the checkpoint's own (30): shorter is "
        "cheaper, but a Whisper that was not trained for it gets worse, so measure it on your audio",
    ),
    padding: str = typer.Option(
        "", help="silence or zeros: what follows shorter audio, in place of the checkpoint's own (silence)"
    ),
    audio: Path = typer.Option(
        DEMO_SAMPLES, help="check on this folder of wav, flac and ogg files (samples.json: their texts)"
    ),
    language: str = typer.Option(
        "", help="of that audio, as an ISO 639-1 code; the model's first if not told"
    ),
    min_agreement: float = typer.Option(
        None,
        min=0,
        max=1,
        help="refuse a lower token agreement with torch (default 0.9; 0 for random weights)",
    ),
) -> None:
    """Export SOURCE to ONNX, compare it with torch, and put it in place."""
    with operator_errors():
        targets = {each: target(each.value, name, out) for each in precision}
        if len(set(targets.values())) < len(targets):
            raise ArtefactError(
                "each precision needs its own directory: put {precision} into --name or --out"
            )
        directory = resolve_checkpoint(source)
        with progress("Loading torch and the checkpoint"):
            checkpoint = load(directory, source)
        checkpoint.override(padding=padding)
        contexts_s = checkpoint.contexts_s(parse_contexts(contexts) if contexts else None)
        recordings = read_recordings(audio, contexts_s[-1])
        torch_heard = reference(checkpoint, recordings, contexts_s, language)
        checkpoint.tell()
        folder = next(iter(targets.values())).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as scratch:
            graphs = Path(scratch)
            with progress("Exporting"):
                export(checkpoint, graphs)
            errors = largest_errors(checkpoint, graphs, contexts_s)
            report("FP32 graphs against torch", errors)
            refuse_wrong(errors, "fp32")
            for each, place in targets.items():
                manifest = Manifest(
                    task="speech",
                    runtime="onnxruntime",
                    runtime_version=onnxruntime.__version__,
                    precision=each.value,
                    source=directory.resolve().name if Path(source).is_dir() else source,
                    source_sha256=checkpoint_sha256(directory),
                    command=build_command("build/speech_onnx.py"),
                    shapes=checkpoint.shapes(contexts_s),
                    extra=extra(checkpoint),
                )
                with atomic_directory(place) as work:
                    with progress(f"Writing {each.value}"):
                        write_graphs(graphs, work, each)
                        checkpoint.write_files(work)
                    write_manifest(work, manifest)  # The serving engine reads it.
                    manifest.check, more = check(checkpoint, torch_heard, work, each, contexts_s)
                    judge(manifest, checkpoint, min_agreement, place.name)
                    manifest.check |= {"fp32_graphs": errors, **more}
                    write_manifest(work, manifest)
                size = sum(path.stat().st_size for path in place.iterdir()) / 1e6
                report("Built", {"artefact": place, "size": f"{size:.1f} MB"})


def check(
    checkpoint: Checkpoint, heard: Reference, directory: Path, precision: Precision, contexts_s: list[float]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of the written graphs on audio, and FP16 ones' largest errors on random tensors.

    Raises:
        ArtefactError: FP16 graphs compute something else.
    """
    more: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix=".rounded-", dir=directory.parent) as scratch:
        measured = directory
        if precision is Precision.fp16:
            measured = Path(scratch)
            write_rounded(directory, measured)
            more["fp16_graphs"] = largest_errors(checkpoint, measured, contexts_s)
            report("FP16 graphs against torch, every tensor rounded", more["fp16_graphs"])
            refuse_wrong(more["fp16_graphs"], "fp16")
        figures = compare(checkpoint, heard, *runtime(measured, checkpoint))
    words = compare_words(heard, directory, "onnxruntime", random_weights=checkpoint.random_weights)
    return figures | words, more


def extra(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the engine needs beside the graphs, for the manifest."""
    never, not_first = checkpoint.suppressed()
    return checkpoint.described() | {"suppressed": never, "suppressed_first": not_first, "opset": OPSET}


if __name__ == "__main__":
    typer.run(main)
