"""Builds Whisper models as ONNX graphs: checkpoint → encoder.onnx and decoder.onnx for ONNX Runtime.

    python build/speech_onnx.py openai/whisper-base --precision fp32 --precision int8

The graphs' names, shapes and types are in build/speech_onnx_export.py; other runtimes (TensorRT) can build on
the FP32 ones. They are compared with torch number by number, then every artefact on audio, before it replaces
an older one. This script does not train or serve.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import typer
from speech_audio import DEMO_SAMPLES, read_recordings
from speech_check import compare, compare_words, judge, reference, target
from speech_checkpoint import Checkpoint, load, parse_contexts
from speech_onnx_check import largest_errors
from speech_onnx_export import OPSET, export, save

from trimodal.build_support import build_command, operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest
from trimodal.speech.greedy import Greedy, Row
from trimodal.speech.onnx_graphs import DECODER, ENCODER, WhisperGraphs

# Of FP32 graphs, as a share of the spread of what is compared; rounding alone gives about 1e-5.
MAX_ERROR = 1e-3


class Precision(str, Enum):
    fp32 = "fp32"
    int8 = "int8"


def main(
    source: str = typer.Argument(..., help="checkpoint directory or hub id of a Whisper"),
    precision: list[Precision] = typer.Option(
        ["fp32"], help="repeat it to build both; int8: weights, and activations as they come (no calibration)"
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
            _refuse_wrong(errors)
            for each, place in targets.items():
                manifest = Manifest(
                    task="speech",
                    runtime="onnxruntime",
                    runtime_version=version("onnxruntime"),
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
                    manifest.check = compare(checkpoint, torch_heard, *runtime(work, checkpoint))
                    manifest.check |= compare_words(
                        torch_heard, work, "onnxruntime", random_weights=checkpoint.random_weights
                    )
                    judge(manifest, checkpoint, min_agreement, place.name)
                    manifest.check["fp32_graphs"] = errors
                    write_manifest(work, manifest)
                size = sum(path.stat().st_size for path in place.iterdir()) / 1e6
                report("Built", {"artefact": place, "size": f"{size:.1f} MB"})


def extra(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the engine needs beside the graphs, for the manifest."""
    never, not_first = checkpoint.suppressed()
    return checkpoint.described() | {"suppressed": never, "suppressed_first": not_first, "opset": OPSET}


def write_graphs(graphs: Path, directory: Path, precision: Precision) -> None:
    """The two graphs, as they are or with 8-bit products; convolutions and embeddings stay in FP32."""
    if precision is Precision.fp32:
        for name in (ENCODER, DECODER):
            for path in graphs.glob(f"{name}*"):  # Large weights lie beside the graph.
                shutil.copyfile(path, directory / path.name)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # It advises a preparation that changes nothing here.
    for name, source in ((ENCODER, graphs / ENCODER), (DECODER, unshared(graphs / DECODER))):
        quantize_dynamic(
            source,
            directory / name,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=(graphs / f"{name}.data").exists(),
        )


def unshared(path: Path) -> Path:
    """A copy whose last product has embeddings of its own: the quantiser transposes them in place."""
    import onnx

    model = onnx.load(path)
    weights = {weight.name: weight for weight in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm":
            copy = onnx.TensorProto()
            copy.CopyFrom(weights[node.input[1]])
            copy.name = node.input[1] = f"{copy.name}_projection"
            model.graph.initializer.append(copy)
    save(model, path.with_name("unshared.onnx"))
    return path.with_name("unshared.onnx")


def runtime(directory: Path, checkpoint: Checkpoint) -> tuple[Any, Any]:
    """The built graphs' encoder, and greedy decoding without the serving engine's own limits."""
    import torch

    graphs = WhisperGraphs(directory, device="cpu", threads=torch.get_num_threads())
    never, not_first = checkpoint.suppressed()
    places = checkpoint.config.max_target_positions
    greedy = Greedy(
        end=checkpoint.token_id("<|endoftext|>"), never=never, not_first=not_first, positions=places
    )

    def encode(features: Any) -> Any:
        return graphs.encode(features, hidden=True)["hidden"].numpy()

    def write(features: Any, prompt: list[int]) -> list[list[int]]:
        rows = [Row(most_tokens=places) for _ in features]
        decoding = graphs.begin(graphs.encode(features))
        logits, attention = decoding.step(np.array([prompt] * len(rows), np.int64))
        greedy.decode(rows, decoding, logits, attention, 0.0)
        return [row.tokens for row in rows]

    return encode, write


def _refuse_wrong(errors: dict[str, float]) -> None:
    allowed = {"hidden_error_max": errors["hidden_std"], "logit_error_max": errors["logit_std"]}
    for name, spread in (allowed | {"alignment_error_max": 1.0}).items():
        if not errors[name] <= MAX_ERROR * spread:
            raise ArtefactError(
                f"the exported graphs differ from torch ({name} {errors[name]:.2g}): nothing was replaced"
            )


if __name__ == "__main__":
    typer.run(main)
