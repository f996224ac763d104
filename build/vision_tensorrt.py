"""Builds a TensorRT plan of a classifier for Triton's own backend: FP16, INT8, FP8 or FP32.

    python build/vision_tensorrt.py CHECKPOINT --precision fp16
    python build/vision_tensorrt.py model_repository/vision_classify/1/onnx-fp16 --max-batch 32 --opt-batch 16
    python build/vision_tensorrt.py CHECKPOINT --precision int8 --images photos/

SOURCE is an artefact of build/vision_onnx.py or a checkpoint, whose graph that script makes first and which
stays beside the plan. Labels and the input's form come from the graph's manifest, so that vision_preprocess
and vision_rank read either directory. The plan is compared with its graph on ONNX Runtime; one that differs
replaces nothing. It runs where it will be served: a plan is tied to the GPU's SM and to the TensorRT version.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from steps.tensorrt import plan as tensorrt_plan
from steps.tensorrt.plan import PlanFigures

from trimodal.build_support import STOPPED, build_command, operator_errors, report, run_script
from trimodal.errors import ArtefactError
from trimodal.manifest import (
    MANIFEST,
    InputRange,
    Manifest,
    atomic_directory,
    check_room,
    sha256,
    write_manifest,
)
from trimodal.paths import artefact_root
from trimodal.vision.artefact import LABELS, ClassifierArtefact, InputSpec, read_classifier

# Precision of the plan → precision of the graph, as build/vision_onnx.py names it.
GRAPHS = {"fp32": "fp32", "fp16": "fp16", "int8": "int8-gpu", "fp8": "fp8"}
FP8_SM = [8, 9]
PLAN, GRAPH = "model.plan", "model.onnx"


def main() -> None:
    options = arguments()
    # What costs least is asked first: library, GPU, torch, then the graph and the config, then the build.
    version, gpu = tensorrt_plan.tensorrt_version(), tensorrt_plan.gpu_target()
    if options.check:
        tensorrt_plan.require_cuda()
    artefact = find_graph(options)
    precision = precision_of(artefact, options.precision)
    if precision == "fp8" and [int(part) for part in gpu.sm.split(".")] < FP8_SM:
        raise ArtefactError(
            f"FP8 needs SM 8.9 (Ada) or later, {gpu.name} has {gpu.sm}: --precision int8 or fp16"
        )
    batches = read_batches(options, artefact.input)
    graph = artefact.directory / GRAPH
    target = options.out_dir / f"tensorrt-{precision}"
    # 8 bits of a weight stand in the plan where the graph has 16.
    check_room(options.out_dir, graph.stat().st_size / (1 if precision in ("fp16", "fp32") else 2))
    with atomic_directory(target) as work:
        print(f"{graph} → {target / PLAN}: TensorRT {version}, {gpu.name} (SM {gpu.sm})")
        figures = tensorrt_plan.build_plan(graph, work / PLAN, [{"pixels": batches}])
        check: dict[str, object] = {"not run": "--no-check"}
        if options.check:
            from steps.vision.plan_check import compare_plan

            random = bool(artefact.manifest.extra.get("random_weights"))
            check = compare_plan(
                work / PLAN, graph, artefact.input, batches, precision, options, random_weights=random
            )
        report(
            f"{target.name}: {artefact.manifest.source}",
            {"MB": figures.bytes / 1e6, "build s": figures.seconds, "layers": figures.layers, **check},
        )
        shutil.copy(artefact.directory / LABELS, work / LABELS)
        write_manifest(work, manifest(artefact, precision, figures, check))
    print(f"wrote {target}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="onnx-* artefact, checkpoint directory or hub id")
    parser.add_argument(
        "--precision", choices=list(GRAPHS), help="of a checkpoint: fp16; an artefact has one"
    )
    parser.add_argument(
        "--images", type=Path, help="folder of pictures for the graph's INT8 or FP8, and for the check"
    )
    default = artefact_root("vision_classify")
    parser.add_argument("--out-dir", type=Path, default=default, help="where tensorrt-<precision> is put")
    parser.add_argument("--max-batch", type=int, default=16, help="largest batch of the plan (16)")
    parser.add_argument(
        "--opt-batch", type=int, help="batch that kernels are chosen for; half of the largest"
    )
    parser.add_argument(
        "--min-agreement",
        type=float,
        help="refuse less, top-1 against the graph (it warns below 0.95)",
    )
    parser.add_argument("--max-error", type=float, help="refuse more, relative, against the graph")
    parser.add_argument("--no-check", dest="check", action="store_false", help="where torch has no CUDA")
    return parser.parse_args(argv)


def read_batches(options: argparse.Namespace, spec: InputSpec) -> InputRange:
    """The shapes that the plan is built for. Raises: ArtefactError: batches that are not in order."""
    best = max(1, options.max_batch // 2) if options.opt_batch is None else options.opt_batch
    if not 1 <= best <= options.max_batch:
        raise ArtefactError(f"--opt-batch {best} is not within 1 to --max-batch, {options.max_batch}")
    low, opt, high = ((size, 3, spec.height, spec.width) for size in (1, best, options.max_batch))
    return InputRange(min=low, opt=opt, max=high)


def find_graph(options: argparse.Namespace) -> ClassifierArtefact:
    """The artefact that `source` is, or the one that build/vision_onnx.py makes of a checkpoint."""
    if (Path(options.source) / MANIFEST).is_file():
        return read_classifier(Path(options.source).resolve(), runtime="onnxruntime")
    name = GRAPHS[options.precision or "fp16"]
    command = [sys.executable, str(Path(__file__).with_name("vision_onnx.py"))]
    command += [options.source, "--precision", name, "--out-dir", str(options.out_dir)]
    command += ["--max-batch", str(options.max_batch)]
    if options.images:
        command += ["--images", str(options.images)]
    # A process of its own: torch's memory is free again before TensorRT measures what there is.
    code = run_script(command)
    if code == STOPPED:
        raise KeyboardInterrupt
    if code:
        raise ArtefactError(f"no graph, so no plan: build/vision_onnx.py --precision {name} says why above")
    return read_classifier((options.out_dir / f"onnx-{name}").resolve(), runtime="onnxruntime")


def precision_of(artefact: ClassifierArtefact, wanted: str | None) -> str:
    """The plan's precision: the graph's. Raises: ArtefactError where `wanted` or TensorRT differ."""
    has = artefact.manifest.precision
    found = next((plan for plan, graph in GRAPHS.items() if graph == has), None)
    if found is None:
        raise ArtefactError(
            f"{artefact.directory} is {has}, quantised for CPUs: TensorRT wants build/vision_onnx.py "
            "--precision int8-gpu"
        )
    if wanted and wanted != found:
        raise ArtefactError(
            f"{artefact.directory} is {has}, and a plan has its graph's precision: --precision {found}, "
            f"or the graph of build/vision_onnx.py --precision {GRAPHS[wanted]}"
        )
    return found


def manifest(
    artefact: ClassifierArtefact, precision: str, figures: PlanFigures, check: dict[str, object]
) -> Manifest:
    onnx = artefact.manifest
    return Manifest(
        task="vision",
        runtime="tensorrt",
        runtime_version=figures.tensorrt_version,
        precision=precision,
        source=onnx.source,
        source_sha256=onnx.source_sha256,
        command=build_command("vision_tensorrt"),
        shapes={**onnx.shapes, "max_batch_size": max(one["pixels"].max[0] for one in figures.profiles)},
        gpu=figures.gpu,
        profiles=figures.profiles,
        calibration=onnx.calibration,
        check={**check, "build_seconds": round(figures.seconds, 1)},
        extra={
            **onnx.extra,
            "graph": {
                "sha256": sha256(artefact.directory / GRAPH),
                "command": onnx.command,
                "check": onnx.check,
            },
        },
    )


if __name__ == "__main__":
    with operator_errors():
        main()
