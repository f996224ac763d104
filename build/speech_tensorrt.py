"""Builds Whisper for TensorRT: checkpoint → encoder.plan and decoder.plan, strongly typed, checked.

    python build/speech_tensorrt.py openai/whisper-large-v3-turbo --precision fp16 --max-batch 8

The network is exported as two ONNX graphs (build/steps/speech/export.py), which are compared in ONNX Runtime
with transformers, then compiled; nothing is quantised. It runs where it will be served: a plan is tied to the
GPU's SM and to the TensorRT version. Plans that differ from transformers replace nothing.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import typer
from steps.artefact import WEIGHT_BYTES, origin
from steps.limits import hold_agreement
from steps.speech import build
from steps.speech.audio import SAMPLES
from steps.speech.check import compare_words
from steps.speech.profiles import decoder_profiles, encoder_profiles, manifest_profiles
from steps.tensorrt import plan
from steps.tensorrt.plan import PlanFigures

from trimodal.build_support import operator_errors, progress, report
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, scratch_directory, write_manifest
from trimodal.speech.engines.graphs.rows import bucket_sizes
from trimodal.speech.engines.tensorrt.engine import BUILT_FOR, open_plans
from trimodal.speech.whisper.artefact import SpeechShapes

PLANS = "encoder.plan", "decoder.plan"
USUAL_AGREEMENT = 0.95


class Precision(str, Enum):
    fp16 = "fp16"
    fp32 = "fp32"


def main(
    source: build.Source,
    precision: Precision = typer.Option(Precision.fp16, help="of weights and caches"),
    name: build.Name = "tensorrt-{precision}",
    out: build.Out = "",
    max_batch: int = typer.Option(
        8, min=1, max=256, help="windows of one run; at least max_batch_windows of config.pbtxt"
    ),
    opt_batch: int = typer.Option(
        0, min=0, help="windows that the encoder's kernels are chosen for; 0: half of the largest"
    ),
    contexts: build.Contexts = "30",
    padding: build.Padding = "silence",
    audio: build.Audio = SAMPLES,
    language: build.Language = "",
    min_agreement: float = typer.Option(
        None, min=0, max=1, help=f"refuse a lower share of torch's words (it warns below {USUAL_AGREEMENT})"
    ),
    check: bool = typer.Option(True, help="--no-check where torch has no CUDA"),
) -> None:
    """Compile SOURCE for this GPU, compare it with torch, and put it in place."""
    with operator_errors():
        # What costs nothing is asked first: library, GPU, torch, then the checkpoint, then the builds.
        version, gpu = plan.tensorrt_version(), plan.gpu_target()
        if check:
            plan.require_cuda()
        usual = opt_batch or max(1, max_batch // 2)
        if usual > max_batch:
            raise ArtefactError(f"--opt-batch {opt_batch} is more than --max-batch {max_batch}")
        graphs = WEIGHT_BYTES[precision.value]
        made = build.prepare(source, [precision], name, out, contexts, padding, audio, language, graphs)
        place = made.targets[precision.value]
        shapes = SpeechShapes.model_validate(made.checkpoint.shapes(made.contexts_s))
        print(f"{source} → {place}: TensorRT {version}, {gpu.name} (SM {gpu.sm})")
        with atomic_directory(place) as work:
            figures, profiles = build_plans(made, work, precision.value, shapes, (1, usual, max_batch))
            made.checkpoint.write_files(work)
            manifest = describe(made, precision.value, figures, max_batch)
            manifest.profiles = profiles
            write_manifest(work, manifest)
            manifest.check = {"not run": "--no-check"}
            if check:
                manifest.check = compare(made, work, manifest, shapes, max_batch)
                judge(manifest, min_agreement)
            report(f"{place.name}: {manifest.source}", {**manifest.check, **summary(figures)})
            write_manifest(work, manifest)


def build_plans(
    made: build.Prepared,
    work: Path,
    precision: str,
    shapes: SpeechShapes,
    batch: tuple[int, int, int],
) -> tuple[dict[str, PlanFigures], list[Any]]:
    """Both plans in `work`; their figures, and the profiles for the manifest."""
    from steps.speech.export import DECODER, ENCODER, export
    from steps.speech.graph_check import check_graphs

    figures = {}
    with scratch_directory(work.parent, ".graphs-") as scratch:
        with progress("Exporting"):
            export(made.checkpoint.network(), scratch, precision)
        encoder, decoder = scratch / ENCODER, scratch / DECODER
        check_graphs(made.checkpoint, scratch, precision, shapes)
        ranges = encoder_profiles(encoder, shapes, batch), decoder_profiles(decoder, shapes, batch)
        for graph, name, profiles in zip((encoder, decoder), PLANS, ranges, strict=True):
            figures[name] = plan.build_plan(graph, work / name, profiles)
    return figures, manifest_profiles(*ranges)


def describe(
    made: build.Prepared, precision: str, figures: dict[str, PlanFigures], max_batch: int
) -> Manifest:
    """The manifest of the plans: what the checkpoint says, and what they were compiled for."""
    encoder = figures[PLANS[0]]
    never, not_first = made.checkpoint.suppressed()
    return Manifest(
        task="speech",
        runtime="tensorrt",
        runtime_version=encoder.tensorrt_version,
        precision=precision,
        **origin(made.checkpoint.directory, made.source, "speech_tensorrt"),
        shapes={**made.checkpoint.shapes(made.contexts_s), BUILT_FOR: max_batch},
        gpu=encoder.gpu,
        extra={
            **made.checkpoint.described(),
            "suppressed": never,
            "suppressed_first": not_first,
            "plans": summary(figures),
        },
    )


def compare(
    made: build.Prepared, work: Path, manifest: Manifest, shapes: SpeechShapes, max_batch: int
) -> dict[str, Any]:
    """Figures of the plans on this GPU: numbers, then words. Raises ArtefactError: they differ."""
    from steps.speech.graph_check import check_plans

    engine = open_plans(work, manifest, shapes, max_batch, device=plan.DEVICE)
    numbers = check_plans(made.checkpoint, engine.graphs, manifest.precision, shapes, bucket_sizes(max_batch))
    words = compare_words(made.heard, engine, random_weights=made.checkpoint.random_weights)
    return numbers | words | {"windows": len(made.heard.windows)}


def summary(figures: dict[str, PlanFigures]) -> dict[str, float]:
    """Sizes and build times."""
    return {
        f"{name} {what}": round(value, 1)
        for name, one in figures.items()
        for what, value in (("MB", one.bytes / 1e6), ("build s", one.seconds))
    }


def judge(manifest: Manifest, asked: float | None) -> None:
    """Raises: ArtefactError when too few words are those of torch."""
    usual = 0.0 if manifest.extra.get("random_weights") else USUAL_AGREEMENT
    who = "nothing was replaced: the plans agree with torch's words"
    hold_agreement(manifest.check, "word_agreement", usual, asked, who=who)


if __name__ == "__main__":
    typer.run(main)
