"""Builds Whisper for TensorRT: a network → encoder.plan and decoder.plan, strongly typed, checked.

    python build/speech_tensorrt.py openai/whisper-large-v3-turbo --precision fp16 --max-batch 8
    python build/speech_tensorrt.py model_repository/speech_recognize/1/torch-fp16

SOURCE is an artefact of build/speech_torch.py, or a checkpoint, whose artefact that script makes first and
which stays beside the plans. Precision is that of its weights: nothing is quantised here. It runs where it
will be served: a plan is tied to the GPU's SM and to the TensorRT version. Plans that differ from the network
replace nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import typer
from steps.artefact import target
from steps.limits import hold_agreement
from steps.speech.audio import DEMO_SAMPLES, read_recordings
from steps.speech.build import MODEL, Name, Out
from steps.speech.profiles import decoder_profiles, encoder_profiles, manifest_profiles
from steps.tensorrt import plan, run
from steps.tensorrt.operators import refuse_unsupported
from steps.tensorrt.plan import PlanFigures, PlanOptions

from trimodal.build_support import build_command, operator_errors, progress, report
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest, atomic_directory, read_manifest, sha256, write_manifest
from trimodal.paths import artefact_root
from trimodal.speech.engines.tensorrt.engine import BUILT_FOR, open_plans
from trimodal.speech.engines.torch.engine import WEIGHTS, load_network, open_weights
from trimodal.speech.whisper.artefact import SpeechShapes, read_network, read_shapes
from trimodal.speech.whisper.buckets import bucket_sizes

Precision = Literal["fp16", "fp32"]  # of the weights
PLANS = "encoder.plan", "decoder.plan"
TIMINGS = artefact_root(MODEL) / "timing-cache"


def main(
    source: str = typer.Argument(
        ..., help="torch-fp16 or torch-fp32 artefact, checkpoint directory or hub id"
    ),
    precision: Precision = typer.Option("fp16", help="of a checkpoint's weights"),
    name: Name = "tensorrt-{precision}",
    out: Out = "",
    max_batch: int = typer.Option(
        8, min=1, max=256, help="windows of one run; at least max_batch_windows of config.pbtxt"
    ),
    opt_batch: int = typer.Option(
        0, min=0, help="windows that the encoder's kernels are chosen for; 0: half of the largest"
    ),
    contexts: str = typer.Option("", help="of a checkpoint: encoder lengths, as build/speech_torch.py"),
    audio: Path = typer.Option(DEMO_SAMPLES, help="check on this folder, as build/speech_torch.py"),
    workspace_gib: float = typer.Option(None, help="scratch memory at most; all of the GPU's if not told"),
    optimization_level: int = typer.Option(3, min=0, max=5, help="0 builds in seconds, 5 searches longest"),
    timing_cache: Path = typer.Option(
        TIMINGS, help="file, or directory with one per TensorRT version and GPU"
    ),
    min_agreement: float = typer.Option(
        None, min=0, max=1, help="refuse a lower share of torch's words (it warns below 0.95)"
    ),
    check: bool = typer.Option(True, help="--no-check where torch has no CUDA"),
) -> None:
    """Compile SOURCE for this GPU, compare it with torch, and put it in place."""
    with operator_errors():
        # What costs nothing is asked first: library, GPU, torch, then the network, then the builds.
        version, gpu = plan.tensorrt_version(), plan.gpu_target()
        if check:
            run.require_cuda()
        place = target(MODEL, precision, name, out)
        usual = opt_batch or max(1, max_batch // 2)
        if usual > max_batch:
            raise ArtefactError(f"--opt-batch {opt_batch} is more than --max-batch {max_batch}")
        options = PlanOptions(workspace_gib, optimization_level, timing_cache)
        weights = find_weights(source, precision, contexts, audio, place)
        made = read_manifest(weights, task="speech", runtime="torch")
        check_precision(weights, made, precision)
        shapes = read_shapes(weights, made)
        read_network(weights, made)
        print(f"{weights} → {place}: TensorRT {version}, {gpu.name} (SM {gpu.sm})")
        with atomic_directory(place) as work:
            figures, profiles = build_plans(weights, made, work, shapes, (1, usual, max_batch), options)
            for path in weights.iterdir():
                if path.suffix == ".json" and path.name != MANIFEST:
                    shutil.copyfile(path, work / path.name)
            manifest = describe(made, weights, figures, max_batch)
            manifest.profiles = profiles
            write_manifest(work, manifest)
            manifest.check = {"not run": "--no-check"}
            if check:
                from steps.speech import plan_check

                manifest.check = plan_check.compare_numbers(
                    (work, manifest), (weights, made), shapes, bucket_sizes(max_batch)
                )
                windows = [
                    each for one in read_recordings(audio, shapes.contexts_s[-1]) for each in one.windows
                ]
                engines = (
                    open_weights(weights, made, shapes, max_batch, device="cpu"),
                    open_plans(work, manifest, shapes, max_batch, device=run.DEVICE),
                )
                manifest.check |= plan_check.compare_words(engines, windows)
                judge(manifest, min_agreement)
            report(f"{place.name}: {manifest.source}", {**manifest.check, **summary(figures)})
            write_manifest(work, manifest)


def find_weights(source: str, precision: Precision, contexts: str, audio: Path, place: Path) -> Path:
    """The artefact that `source` is, or the one that build/speech_torch.py makes of a checkpoint."""
    if (Path(source) / MANIFEST).is_file():
        return Path(source).resolve()
    weights = place.with_name(f"torch-{precision}")
    command = [sys.executable, str(Path(__file__).with_name("speech_torch.py")), source]
    command += ["--precision", precision, "--out", str(weights), "--audio", str(audio)]
    # A process of its own: torch's memory is free again before TensorRT measures what there is.
    if subprocess.run([*command, *(["--contexts", contexts] if contexts else [])]).returncode:
        raise ArtefactError("no weights, so no plans: build/speech_torch.py says why above")
    return weights


def check_precision(weights: Path, manifest: Manifest, precision: Precision) -> None:
    """Raises: ArtefactError when the weights have another precision than was asked for."""
    if manifest.precision != precision:
        raise ArtefactError(
            f"{weights} is {manifest.precision}, and a plan has its weights' precision: name --precision "
            f"{manifest.precision}, or weights of build/speech_torch.py --precision {precision}"
        )


def build_plans(
    weights: Path,
    made: Manifest,
    work: Path,
    shapes: SpeechShapes,
    batch: tuple[int, int, int],
    options: PlanOptions,
) -> tuple[dict[str, PlanFigures], list[Any]]:
    """Both plans in `work`; their figures, and the profiles for the manifest."""
    import torch
    from steps.speech.static_export import DECODER, ENCODER, export

    figures = {}
    with tempfile.TemporaryDirectory(prefix=".graphs-", dir=work.parent) as scratch:
        with progress("Exporting"):
            network = load_network(weights, made, dtype=torch.float32)
            export(network, Path(scratch), made.precision)
            del network
        encoder, decoder = Path(scratch, ENCODER), Path(scratch, DECODER)
        ranges = encoder_profiles(encoder, shapes, batch), decoder_profiles(decoder, shapes, batch)
        for graph, name, profiles in zip((encoder, decoder), PLANS, ranges, strict=True):
            refuse_unsupported(graph)
            figures[name] = plan.build_plan(graph, work / name, profiles, options)
    return figures, manifest_profiles(*ranges)


def describe(made: Manifest, weights: Path, figures: dict[str, PlanFigures], max_batch: int) -> Manifest:
    """The manifest of the plans: what their weights' says, and what they were compiled for."""
    encoder = figures[PLANS[0]]
    return Manifest(
        task="speech",
        runtime="tensorrt",
        runtime_version=encoder.tensorrt_version,
        precision=made.precision,
        source=made.source,
        source_sha256=made.source_sha256,
        command=build_command("build/speech_tensorrt.py"),
        shapes={**made.shapes, BUILT_FOR: max_batch},
        gpu=encoder.gpu,
        extra={
            **made.extra,
            "weights": {"sha256": sha256(weights / WEIGHTS), "command": made.command, "check": made.check},
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
    """Raises: ArtefactError when too few words are those of torch."""
    usual = 0.0 if manifest.extra.get("random_weights") else 0.95
    who = "nothing was replaced: the plans agree with torch's words"
    hold_agreement(manifest.check, "word_agreement", usual, asked, who=who)


if __name__ == "__main__":
    typer.run(main)
