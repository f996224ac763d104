"""Vision checkpoint → ONNX, FP32 or INT8, checked against torch and put where vision_classify looks for it.

    python build/vision_onnx.py build/demo/vision --precision fp32 --precision int8
    python build/vision_onnx.py --random resnet50 --precision int8 --out-dir artefacts/resnet50

The checkpoint's contract is in build/vision_models.py. INT8 needs images: --calibration, or
`calibration.npz` in the checkpoint. The check uses `evaluation.npz` of the checkpoint where there is one.
An artefact replaces the old one only when its check has passed. It trains nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.build_support import (
    artefact_root,
    build_command,
    operator_errors,
    progress,
    report,
    resolve_checkpoint,
)
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, checkpoint_sha256, write_manifest
from trimodal.vision.artefact import LABELS, PIXELS, InputSpec

DEFAULT_OUT = artefact_root("vision_classify")
BATCH = 16


def main() -> None:
    options = arguments()
    import torch
    from vision_images import load_images, normalised, random_images
    from vision_models import CheckpointConfig, FromBytes, load_checkpoint, random_model

    if options.random:
        spec = InputSpec(height=224, width=224, resize="crop", resize_to=256)
        config = CheckpointConfig(architecture=options.random, num_classes=1000, input=spec)
        seen = normalised(random_images(spec, 32, seed=0).pixels, spec)
        with progress("random weights: batch statistics"):
            model = random_model(options.random, seen)
        source, digest = f"{options.random} with random weights (seed 0)", "none"
        calibration, evaluation = random_images(spec, 128, seed=1), random_images(spec, 64, seed=2)
    else:
        directory = resolve_checkpoint(options.source)
        config, model = load_checkpoint(directory)
        source = directory.resolve().name if Path(options.source).is_dir() else options.source
        digest = checkpoint_sha256(directory)
        calibration = evaluation = None
        own = {name: directory / f"{name}.npz" for name in ("calibration", "evaluation")}
        if options.calibration or own["calibration"].is_file():
            calibration = load_images(options.calibration or own["calibration"], config.input)
        if own["evaluation"].is_file():
            evaluation = load_images(own["evaluation"], config.input)
        if calibration is None and "int8" in options.precision:
            raise ArtefactError(
                "int8 needs images like those to be served: --calibration FOLDER (128 to 512)"
            )
        evaluation = evaluation or calibration or random_images(config.input, 64, seed=2)

    with progress("torch reference", len(evaluation.pixels)) as advance, torch.inference_mode():
        # Normalised outside of the graph: the check covers the graph's own normalisation too.
        reference = batched(
            lambda x: model(torch.from_numpy(normalised(x, config.input))).numpy(), evaluation.pixels, advance
        )

    for precision in options.precision:
        target = options.out_dir / f"onnx-{precision}"
        with atomic_directory(target) as work:
            with progress(f"{precision}: export"):
                export(FromBytes(model, config.input).eval(), config.input, work / "model.onnx")
            if precision == "int8":
                quantise(work / "model.onnx", calibration.pixels, options)
            check = compare(work / "model.onnx", evaluation, reference, precision)
            report(f"{target.name}: {source} against torch", check)
            if check["top1_agreement"] < options.min_agreement:
                raise ArtefactError(
                    f"{target.name} not written: top-1 agreement {check['top1_agreement']:.4f} "
                    f"is below --min-agreement {options.min_agreement}"
                )
            (work / LABELS).write_text(json.dumps(config.labels, ensure_ascii=False, indent=0) + "\n")
            write_manifest(work, manifest(config, precision, source, digest, calibration, check, options))
        print(f"wrote {target}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("source", nargs="?", help="checkpoint directory or hub id")
    what.add_argument("--random", choices=["resnet18", "resnet50"], help="a real shape with random weights")
    parser.add_argument("--precision", action="append", choices=["fp32", "int8"], help="repeatable; fp32")
    parser.add_argument("--calibration", type=Path, help="folder of images, or .npz; 128 to 512 are best")
    parser.add_argument(
        "--activations",
        choices=["u8", "s8"],
        default="u8",
        help="INT8 activations (u8: 3 times as fast on x86)",
    )
    parser.add_argument("--reduce-range", action="store_true", help="7-bit weights, for a CPU without VNNI")
    parser.add_argument(
        "--min-agreement", type=float, help="top-1 against torch (0.9; with --random 0: nothing stands out)"
    )
    parser.add_argument("--out-dir", type=Path, default=DEFAULT_OUT, help="where onnx-<precision> is put")
    options = parser.parse_args()
    if options.min_agreement is None:
        options.min_agreement = 0.0 if options.random else 0.9
    options.precision = list(dict.fromkeys(options.precision or ["fp32"]))
    return options


def export(model: Any, spec: InputSpec, path: Path) -> None:
    """`pixels` uint8 [batch, 3, H, W] → `logits` float32 [batch, C], batch free."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # The TorchScript exporter announces its successor; it is 10 times quicker.
        torch.onnx.export(
            model,
            (torch.zeros(1, 3, spec.height, spec.width, dtype=torch.uint8),),
            str(path),
            input_names=["pixels"],
            output_names=["logits"],
            dynamic_axes={"pixels": {0: "batch"}, "logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )


def quantise(path: Path, pixels: np.ndarray, options: argparse.Namespace) -> None:
    """INT8 with QDQ nodes: weights per channel, activations by the range seen in calibration."""
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.getLogger().setLevel(logging.ERROR)
    starts = range(0, len(pixels), BATCH)
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    with progress(f"int8: calibrate on {len(pixels)} images", len(starts)) as advance:

        class Reader(q.CalibrationDataReader):
            def __init__(self) -> None:
                self._batches = iter([pixels[start : start + BATCH] for start in starts])

            def get_next(self) -> dict[str, np.ndarray] | None:
                batch = next(self._batches, None)
                if batch is None:
                    return None
                advance()
                return {"pixels": batch}

        q.quantize_static(
            str(prepared),
            str(path),
            Reader(),
            quant_format=q.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=options.reduce_range,
            activation_type=q.QuantType.QUInt8 if options.activations == "u8" else q.QuantType.QInt8,
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=normalisation(prepared),
        )
    prepared.unlink()


def normalisation(path: Path) -> list[str]:
    """Names of the nodes between `pixels` and the first layer: they stay in floats, where nothing is lost."""
    import onnx

    users = {tensor: node for node in onnx.load(path).graph.node for tensor in node.input}
    names, node = [], users["pixels"]
    while node.op_type in ("Cast", "Mul", "Add"):
        names.append(node.name)
        node = users[node.output[0]]
    return names


def compare(path: Path, images: Any, reference: np.ndarray, precision: str) -> dict[str, Any]:
    """Figures of ONNX Runtime's logits against torch's on the same pixels."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with progress(f"{precision}: check against torch", len(images.pixels)) as advance:
        logits = batched(lambda x: session.run(["logits"], {"pixels": x})[0], images.pixels, advance)
    error = np.abs(logits - reference)
    figures: dict[str, Any] = {
        "images": len(logits),
        "images_from": images.origin,
        "max_error": float(error.max()),
        "mean_error": float(error.mean()),
        "relative_error": float(np.linalg.norm(error) / np.linalg.norm(reference)),
        "top1_agreement": float((logits.argmax(1) == reference.argmax(1)).mean()),
    }
    if images.truth is not None:
        figures["top1_accuracy"] = float((logits.argmax(1) == images.truth).mean())
        figures["top1_accuracy_torch"] = float((reference.argmax(1) == images.truth).mean())
    return figures


def batched(run: Any, pixels: np.ndarray, advance: Any = None) -> np.ndarray:
    """`run` over slices of the batch, put together again."""
    parts = []
    for start in range(0, len(pixels), BATCH):
        parts.append(run(pixels[start : start + BATCH]))
        if advance:
            advance(len(parts[-1]))
    return np.concatenate(parts)


def manifest(
    config: Any, precision: str, source: str, digest: str, calibration: Any, check: dict, options: Any
) -> Manifest:
    import onnxruntime

    spec = config.input
    used = {}
    if precision == "int8":
        used = {"images": len(calibration.pixels), "from": calibration.origin, "method": "minmax"}
        used |= {"activations": options.activations, "reduce_range": options.reduce_range}
    return Manifest(
        task="vision",
        runtime="onnxruntime",
        runtime_version=onnxruntime.__version__,
        precision=precision,
        source=source,
        source_sha256=digest,
        command=build_command("build/vision_onnx.py"),
        shapes={"pixels": [-1, 3, spec.height, spec.width], "classes": config.num_classes},
        calibration=used,
        check=check,
        extra={
            "architecture": config.architecture,
            "pixels": PIXELS,
            "input": spec.model_dump(mode="json"),
        },
    )


if __name__ == "__main__":
    with operator_errors():
        main()
