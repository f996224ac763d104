"""Builds Whisper for TensorRT: ONNX graphs → encoder.plan and decoder.plan, strongly typed, checked.

    python build/speech_tensorrt.py openai/whisper-large-v3-turbo --precision fp16 --max-batch 8
    python build/speech_tensorrt.py model_repository/speech_recognize/1/onnx-fp16

SOURCE is an artefact of build/speech_onnx.py, or a checkpoint, whose graphs that script makes first and which
stay beside the plans. Precision is the graphs': nothing is quantised here. It runs where it will be served: a
plan is tied to the GPU's SM and to the TensorRT version. Plans that differ from their graphs replace nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import onnx
import typer
from steps.artefact import target
from steps.speech.audio import DEMO_SAMPLES, read_recordings
from steps.speech.build import MODEL, Name, Out
from steps.speech.onnx_export import save
from steps.speech.profiles import decoder_profiles, encoder_profiles, manifest_profiles
from steps.tensorrt import plan, run
from steps.tensorrt.operators import refuse_unsupported
from steps.tensorrt.plan import PlanFigures, PlanOptions

from trimodal.build_support import build_command, operator_errors, report
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest, atomic_directory, read_manifest, sha256, write_manifest
from trimodal.paths import artefact_root
from trimodal.speech.engines import onnxruntime
from trimodal.speech.engines.tensorrt import graphs as tensorrt_graphs
from trimodal.speech.engines.tensorrt.engine import open_plans
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import SpeechShapes, read_shapes, read_spec

Precision = Literal["fp16", "fp32"]  # of the graphs
TIMINGS = artefact_root(MODEL) / "timing-cache"


def main(
    source: str = typer.Argument(..., help="onnx-fp16 or onnx-fp32 artefact, checkpoint directory or hub id"),
    precision: Precision = typer.Option("fp16", help="of a checkpoint's graphs"),
    name: Name = "tensorrt-{precision}",
    out: Out = "",
    max_batch: int = typer.Option(
        8, min=1, max=256, help="windows of one run; at least max_batch_windows of config.pbtxt"
    ),
    opt_batch: int = typer.Option(
        0, min=0, help="windows that kernels are chosen for; 0: half of the largest"
    ),
    contexts: str = typer.Option("", help="of a checkpoint: encoder lengths, as build/speech_onnx.py"),
    audio: Path = typer.Option(DEMO_SAMPLES, help="check on this folder, as build/speech_onnx.py"),
    workspace_gib: float = typer.Option(None, help="scratch memory at most; all of the GPU's if not told"),
    optimization_level: int = typer.Option(3, min=0, max=5, help="0 builds in seconds, 5 searches longest"),
    timing_cache: Path = typer.Option(
        TIMINGS, help="file, or directory with one per TensorRT version and GPU"
    ),
    min_agreement: float = typer.Option(
        None, min=0, max=1, help="of words with the graphs' (default 0.95; 0 for random weights)"
    ),
    check: bool = typer.Option(True, help="--no-check where torch has no CUDA"),
) -> None:
    """Compile SOURCE for this GPU, compare it with its graphs, and put it in place."""
    with operator_errors():
        # What costs nothing is asked first: library, GPU, torch, then the graphs, then the builds.
        version, gpu = plan.tensorrt_version(), plan.gpu_target()
        if check:
            run.require_cuda()
        place = target(MODEL, precision, name, out)
        usual = opt_batch or max(1, max_batch // 2)
        if usual > max_batch:
            raise ArtefactError(f"--opt-batch {opt_batch} is more than --max-batch {max_batch}")
        options = PlanOptions(workspace_gib, optimization_level, timing_cache)
        graphs = find_graphs(source, precision, contexts, audio, place)
        made = read_manifest(graphs, task="speech", runtime="onnxruntime")
        check_precision(graphs, made, precision)
        shapes = read_shapes(graphs, made)
        read_spec(graphs, made)
        print(f"{graphs} → {place}: TensorRT {version}, {gpu.name} (SM {gpu.sm})")
        with atomic_directory(place) as work:
            figures, profiles = build_plans(graphs, work, shapes, (1, usual, max_batch), options)
            for path in graphs.iterdir():
                if path.suffix == ".json" and path.name != MANIFEST:
                    shutil.copyfile(path, work / path.name)
            manifest = describe(made, graphs, shapes, figures, max_batch)
            manifest.profiles = profiles
            write_manifest(work, manifest)
            manifest.check = {"not run": "--no-check"}
            if check:
                from steps.speech import plan_check

                manifest.check = plan_check.compare_numbers(
                    work, graphs, shapes, (1, usual, max_batch), precision
                )
                windows = [
                    each for one in read_recordings(audio, shapes.contexts_s[-1]) for each in one.windows
                ]
                engines = (
                    onnxruntime.open_engine(graphs, RecogniseSettings(artefact=str(graphs))),
                    open_plans(work, manifest, shapes, max_batch, device=run.DEVICE),
                )
                manifest.check |= plan_check.compare_words(engines, windows)
                judge(manifest, min_agreement)
            report(f"{place.name}: {manifest.source}", {**manifest.check, **summary(figures)})
            write_manifest(work, manifest)


def find_graphs(source: str, precision: Precision, contexts: str, audio: Path, place: Path) -> Path:
    """The artefact that `source` is, or the one that build/speech_onnx.py makes of a checkpoint."""
    if (Path(source) / MANIFEST).is_file():
        return Path(source).resolve()
    graphs = place.with_name(f"onnx-{precision}")
    command = [sys.executable, str(Path(__file__).with_name("speech_onnx.py")), source]
    command += ["--precision", precision, "--out", str(graphs), "--audio", str(audio)]
    # A process of its own: torch's memory is free again before TensorRT measures what there is.
    if subprocess.run([*command, *(["--contexts", contexts] if contexts else [])]).returncode:
        raise ArtefactError("no graphs, so no plans: build/speech_onnx.py says why above")
    return graphs


def check_precision(graphs: Path, manifest: Manifest, precision: Precision) -> None:
    """Raises: ArtefactError when the graphs have another precision than was asked for."""
    if manifest.precision != precision:
        raise ArtefactError(
            f"{graphs} is {manifest.precision}, and a plan has its graphs' precision: name --precision "
            f"{manifest.precision}, or graphs of build/speech_onnx.py --precision {precision}"
        )


def build_plans(
    graphs: Path, work: Path, shapes: SpeechShapes, batch: tuple[int, int, int], options: PlanOptions
) -> tuple[dict[str, PlanFigures], list[Any]]:
    """Both plans in `work`; their figures, and the profiles for the manifest."""
    figures = {}
    with tempfile.TemporaryDirectory(prefix=".graphs-", dir=work.parent) as scratch:
        encoder = without_hidden(graphs / onnxruntime.ENCODER, Path(scratch))
        decoder = graphs / onnxruntime.DECODER
        ranges = encoder_profiles(encoder, shapes, batch), decoder_profiles(decoder, shapes, batch)
        names = tensorrt_graphs.ENCODER, tensorrt_graphs.DECODER
        for graph, name, profiles in zip((encoder, decoder), names, ranges, strict=True):
            refuse_unsupported(graph)
            figures[name] = plan.build_plan(graph, work / name, profiles, options)
    return figures, manifest_profiles(*ranges)


def without_hidden(encoder: Path, directory: Path) -> Path:
    """A copy that gives the decoder's caches alone: writing an output that is not read costs time."""
    model = onnx.load(encoder)
    for output in [one for one in model.graph.output if one.name == "hidden"]:
        model.graph.output.remove(output)
    save(model, directory / encoder.name)
    return directory / encoder.name


def describe(
    made: Manifest, graphs: Path, shapes: SpeechShapes, figures: dict[str, PlanFigures], max_batch: int
) -> Manifest:
    """The manifest of the plans: what their graphs' says, and what they were compiled for."""
    encoder = figures[tensorrt_graphs.ENCODER]
    names = onnxruntime.ENCODER, onnxruntime.DECODER
    return Manifest(
        task="speech",
        runtime="tensorrt",
        runtime_version=encoder.tensorrt_version,
        precision=made.precision,
        source=made.source,
        source_sha256=made.source_sha256,
        command=build_command("build/speech_tensorrt.py"),
        shapes={**made.shapes, "max_batch_size": max_batch},
        gpu=encoder.gpu,
        extra={
            **made.extra,
            "graphs": {
                "sha256": {name: sha256(graphs / name) for name in names},
                "command": made.command,
                "check": made.check,
            },
            "plans": summary(figures),
        },
    )


def summary(figures: dict[str, PlanFigures]) -> dict[str, float]:
    """Sizes and build times."""
    return {
        f"{name} {what}": round(value, 1)
        for name, one in figures.items()
        for what, value in (("MB", one.bytes / 1e6), ("build s", one.seconds))
    }


def judge(manifest: Manifest, asked: float | None) -> None:
    """Raises: ArtefactError when too few words are those of the graphs."""
    limit = asked if asked is not None else 0.0 if manifest.extra.get("random_weights") else 0.95
    manifest.check["min_agreement"] = limit
    if manifest.check["word_agreement"] < limit:
        raise ArtefactError(
            f"the plans agree with their graphs on {manifest.check['word_agreement']:.1%} of the words, less "
            f"than --min-agreement {limit:g}: nothing was replaced"
        )


if __name__ == "__main__":
    typer.run(main)
