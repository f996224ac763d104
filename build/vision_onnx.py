"""Builds ONNX graphs of a vision checkpoint: FP32, FP16, INT8 or FP8, compared with torch.

    python build/vision_onnx.py starter:efficientnet-lite0 --precision fp32 --precision int8
    python build/vision_onnx.py microsoft/resnet-50 --precision int8 --images photos/
    python build/vision_onnx.py artefacts/vit_b_16 --precision fp16 --out-dir artefacts/vit_b_16-onnx

SOURCE is a directory or a hub id: whatever transformers' AutoModelForImageClassification opens, a ResNet's
state dict of torchvision or timm, EfficientNet-Lite's, or an ONNX graph (`steps/vision/classifier.py`).
fp32 and int8 are for CPUs. fp16, int8-gpu and fp8 are for GPUs (ONNX Runtime on CUDA, TensorRT): bytes in,
FP32 logits out, an exact normalisation, FP16 inside, with Q/DQ as TensorRT wants it. Checked, and calibrated,
on --images, or else on the project's photos. An artefact replaces the old one only when its check has passed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimodal.build_support import build_command, operator_errors, progress, report
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, write_manifest
from trimodal.paths import artefact_root
from trimodal.vision.artefact import LABELS

if TYPE_CHECKING:
    import onnx
    from steps.onnx.qdq import Kind
    from steps.vision.images import ImageSet
    from steps.vision.source import Source

PRECISIONS = ["fp32", "fp16", "int8", "int8-gpu", "fp8"]
MIN_AGREEMENT = 0.95
CALIBRATED = ("int8", "int8-gpu", "fp8")


def main() -> None:
    options = arguments()
    from steps.artefact import check_fits
    from steps.vision.check import compare, judge
    from steps.vision.source import from_checkpoint

    source = from_checkpoint(options.source, options.images)
    targets = {precision: options.out_dir / f"onnx-{precision}" for precision in options.precision}
    check_fits(source.weights, targets)
    for precision, target in targets.items():
        with atomic_directory(target) as work:
            write_graph(source, precision, work / "model.onnx", options)
            found = compare(
                work / "model.onnx", source.evaluation, source.reference, precision, options.max_batch
            )
            check = {"against": source.against} | found
            report(f"{target.name}: {source.name} against {source.against}", check)
            least = options.min_agreement
            if least is None:
                least = 0.0 if source.random_weights and precision in CALIBRATED else MIN_AGREEMENT
            judge(target.name, precision, check, least)
            labels = json.dumps(source.labels, ensure_ascii=False, indent=0)
            (work / LABELS).write_text(labels + "\n")
            write_manifest(work, manifest(source, precision, check, options))
        print(f"wrote {target}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="checkpoint directory, starter:NAME or hub id")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="repeatable; fp32")
    parser.add_argument(
        "--images", type=Path, help="folder of pictures like those to be served; 128 to 512 are best"
    )
    parser.add_argument(
        "--keep-float",
        type=int,
        default=0,
        metavar="N",
        help="of int8: so many of the first layers, and the last one, stay in floats (0)",
    )
    parser.add_argument(
        "--min-agreement",
        type=float,
        help="share of equal labels where torch is sure (0.95; INT8 and FP8 of random weights: 0)",
    )
    parser.add_argument("--max-batch", type=int, default=64, help="largest batch of the check (64)")
    default = artefact_root("vision_classify")
    parser.add_argument("--out-dir", type=Path, default=default, help="where onnx-<precision> is put")
    options = parser.parse_args()
    if options.max_batch < 1 or options.keep_float < 0:
        parser.error("--max-batch must be at least 1, --keep-float at least 0")
    options.precision = list(dict.fromkeys(options.precision or ["fp32"]))
    return options


def write_graph(source: Source, precision: str, path: Path, options: argparse.Namespace) -> None:
    """The graph of that precision in `path`."""
    import onnx
    from steps.onnx import qdq
    from steps.onnx.fp16 import to_fp16
    from steps.vision.export import OPSET, OUTPUT, normalisation_nodes, quantise

    with progress(f"{precision}: export"):
        model = source.graph(qdq.OPSET if precision in ("int8-gpu", "fp8") else OPSET)
    if precision == "int8":
        onnx.save(model, path)
        quantise(path, source.calibration.pixels, options.keep_float)
        return
    kept = normalisation_nodes(model)
    if precision in ("int8-gpu", "fp8"):
        model = calibrated(model, "int8" if precision == "int8-gpu" else "fp8", source.calibration)
    if precision != "fp32":
        with progress(f"{precision}: FP16"):
            model = to_fp16(model, keep=[OUTPUT], keep_nodes=kept)
    onnx.save(model, path)


def calibrated(model: onnx.ModelProto, kind: Kind, images: ImageSet) -> onnx.ModelProto:
    """Q/DQ in `model`, by the largest magnitudes that the images reach."""
    from steps.onnx import qdq
    from steps.vision.check import BATCH
    from steps.vision.export import INPUT

    plan = qdq.choose(model, kind)
    if not plan.weighted:
        raise ArtefactError(f"no layer of this network is large enough for {kind}: --precision fp16")
    starts = range(0, len(images.pixels), BATCH)
    with progress(f"{kind}: calibrate on {len(images.pixels)} images", len(starts)) as advance:
        batches = ({INPUT: images.pixels[start : start + BATCH]} for start in starts)
        largest = qdq.ranges(model, plan.activations, batches, advance)
    return qdq.quantise(model, plan, largest, kind)


def manifest(source: Source, precision: str, check: dict[str, Any], options: argparse.Namespace) -> Manifest:
    import onnxruntime

    spec = source.input
    used: dict[str, Any] = {}
    if precision in CALIBRATED:
        used = {"images": len(source.calibration.pixels), "from": source.calibration.origin}
        used["method"] = "minmax" if precision == "int8" else "largest magnitude"
    if precision == "int8":
        used["keep_float"] = options.keep_float
    return Manifest(
        task="vision",
        runtime="onnxruntime",
        runtime_version=onnxruntime.__version__,
        precision=precision,
        source=source.name,
        source_sha256=source.digest,
        command=build_command("vision_onnx"),
        shapes={"pixels": [-1, 3, spec.height, spec.width], "classes": len(source.labels)},
        calibration=used,
        check=check,
        extra={
            "architecture": source.architecture,
            "input": spec.model_dump(mode="json"),
            "random_weights": source.random_weights,
        },
    )


if __name__ == "__main__":
    with operator_errors():
        main()
