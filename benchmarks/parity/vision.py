"""Compares served classifiers with the frameworks that their checkpoints come from, on the project's photos.

    python -m benchmarks.parity.vision photos
    python -m benchmarks.parity.vision families

`photos`: EfficientNet-Lite0 as it was built, FP32 and INT8, against torch with torchvision's preprocessing,
as they are, 4,000 pixels wide, and with shrink_on_load. `families`: a checkpoint of each family with random
weights is built and served in this process, against its own network and its own image processor.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image

from benchmarks.torchvision_reference import pixels as torchvision
from trimodal.build_support import report, resolve_checkpoint
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root, data_directory
from trimodal.vision.artefact import read_classifier
from trimodal.vision.preprocess import FILTERS
from trimodal.vision.settings import VisionSettings
from trimodal.vision.steps import VisionStep

BUILD = Path(__file__).parents[2] / "build"
PHOTOS, ARTEFACTS = data_directory() / "samples" / "photos", artefact_root("vision_classify")
SURE = 0.4
FAMILIES = (
    "resnet50", "vit_b_16", "convnext_tiny", "efficientnet_b0", "mobilenet_v2", "swin_tiny", "dinov2_small",
)  # fmt: skip
Scores = NDArray[np.float32]
app = typer.Typer(add_completion=False, no_args_is_help=True, help=(__doc__ or "").split("\n")[0])


@app.command()
def photos(
    folder: Path = PHOTOS,
    artefacts: Path = ARTEFACTS,
    checkpoint: str = "starter:efficientnet-lite0",
) -> None:
    """The built starter classifier against torch and torchvision's preprocessing."""
    import torch

    sys.path.insert(0, str(BUILD))
    from steps.vision import classifier as checkpoints

    files = [file.read_bytes() for file in sorted(folder.glob("*.jpg"))]
    read = checkpoints.read_classifier(resolve_checkpoint(checkpoint))
    spec = read.input
    mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (spec.mean, spec.std))

    def by_torch(data: bytes) -> Scores:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        resized = torchvision.resize(image, spec.shorter, FILTERS[spec.filter])
        cropped = torchvision.center_crop(resized, spec.height, spec.width)
        pixels = (np.asarray(cropped, np.float32).transpose(2, 0, 1) / 255 - mean) / std
        with torch.inference_mode():
            scores: Scores = read.network(torch.from_numpy(pixels[None])).softmax(1)[0].numpy()
        return scores

    expected = np.stack([by_torch(data) for data in files])
    large = [_enlarged(data) for data in files]
    expected_large = np.stack([by_torch(data) for data in large])
    rows = []
    for name in ("onnx-fp32", "onnx-int8"):
        rows.append([name, "as they are", *_compared(artefacts, name, files, expected)])
        for shrink in (False, True):
            what = f"4,000 pixels wide{', shrink_on_load' if shrink else ''}"
            rows.append([name, what, *_compared(artefacts, name, large, expected_large, shrink)])
    report(
        f"{len(files)} photos, {checkpoint} against torch",
        rows,
        header=[
            "artefact",
            "photos",
            "top-1 equal",
            f"where torch ≥ {SURE}",
            "score error",
            "CPU ms a photo",
        ],
    )


@app.command()
def families(only: list[str] = typer.Option([], help="of the families; all when left out")) -> None:
    """Random weights of each family: built, served, held against its own network and processor."""
    rows = [[name, *_family(name)] for name in only or (*FAMILIES, "timm resnet18", "torchvision resnet50")]
    report(
        "Built and served, against their own framework", rows, header=["checkpoint", "score error", "top-1"]
    )


def _enlarged(data: bytes) -> bytes:
    """The photo as a camera's: 4,000 pixels wide, JPEG."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    file = io.BytesIO()
    larger = image.resize((4000, round(image.height * 4000 / image.width)), Image.Resampling.BICUBIC)
    larger.save(file, "JPEG", quality=92)
    return file.getvalue()


def _compared(
    artefacts: Path, name: str, files: list[bytes], expected: Scores, shrink: bool = False
) -> list[str]:
    ours, seconds = _served(artefacts, name, files, shrink)
    same = ours.argmax(1) == expected.argmax(1)
    sure = expected.max(1) >= SURE
    return [
        f"{same.sum()} of {len(same)}",
        f"{same[sure].sum()} of {sure.sum()}",
        f"{np.abs(ours - expected).max():.2g}",
        f"{1e3 * np.median(seconds):.1f}",
    ]


def _served(
    artefacts: Path, name: str, files: list[bytes], shrink: bool = False
) -> tuple[Scores, list[float]]:
    """Scores in the order of the classes, by the steps that serving runs, and CPU seconds a photo."""
    labels = read_classifier(artefacts / name).labels
    settings = VisionSettings(artefact=name, top_k=len(labels), shrink_on_load=shrink)
    vision = VisionStep.open(artefacts, settings, MemoryMetrics())
    rows, seconds = [], []
    for data in files:
        started = time.process_time()  # of all threads, so that a busy machine counts no differently
        (answer,) = vision.classify([[data]])
        seconds.append(time.process_time() - started)
        assert isinstance(answer, tuple), answer
        found = {label.decode(): score for label, score in zip(answer[0][0], answer[1][0], strict=True)}
        rows.append([found[label] for label in labels])
    vision.close()
    return np.array(rows), seconds


def _family(name: str) -> list[str]:
    with tempfile.TemporaryDirectory() as work:
        checkpoint, out = Path(work, "checkpoint"), Path(work, "out")
        expected = (_state_dict if " " in name else _transformers)(name, checkpoint)
        command = [sys.executable, str(BUILD / "vision_onnx.py"), str(checkpoint), "--max-batch", "4"]
        subprocess.run([*command, "--out-dir", str(out)], check=True, stdout=subprocess.DEVNULL)
        files = sorted(PHOTOS.glob("*.jpg"))
        photos = [file.read_bytes() for file in files]
        theirs = np.stack([expected(Image.open(io.BytesIO(data)).convert("RGB")) for data in photos])
        ours, _ = _served(out, "onnx-fp32", photos)
        same = (ours.argmax(1) == theirs.argmax(1)).sum()
        return [f"{np.abs(ours - theirs).max():.1e}", f"{same} of {len(photos)}"]


def _transformers(name: str, directory: Path) -> Callable[[Image.Image], Scores]:
    """Writes random weights of a family, and gives what transformers answers with its own processor."""
    import torch
    import transformers

    command = [sys.executable, str(BUILD / "random_checkpoint.py"), name, "--out", str(directory)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    model = transformers.AutoModelForImageClassification.from_pretrained(directory).eval()
    sys.path.insert(0, str(BUILD))
    from steps.random.classifier import CLASSIFIER_SHAPES

    kind = getattr(transformers, f"{CLASSIFIER_SHAPES[name].processor}Pil")
    processor = kind.from_pretrained(directory)

    def expected(image: Image.Image) -> Scores:
        with torch.inference_mode():
            pixels = processor(image, return_tensors="pt")["pixel_values"]
            scores: Scores = model(pixel_values=pixels).logits.softmax(1)[0].numpy()
        return scores

    return expected


def _state_dict(name: str, directory: Path) -> Callable[[Image.Image], Scores]:
    """Writes random weights by torchvision's names, and gives what torchvision's arithmetic answers."""
    import json

    import torch

    from benchmarks.torchvision_reference.resnet import ResNet

    timm = name.startswith("timm")
    torch.manual_seed(0)
    model: Any = ResNet((2, 2, 2, 2), 1, 1000) if timm else ResNet((3, 4, 6, 3), 4, 1000)
    _settle(model)
    directory.mkdir()
    torch.save(model.state_dict(), directory / "weights.pth")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    shorter, filter = 256, "bilinear"
    if timm:
        shorter, filter = 235, "bicubic"  # 224 / 0.95
        fields = {"input_size": [3, 224, 224], "interpolation": filter, "crop_pct": 0.95, "mean": mean}
        config = {"architecture": "resnet18", "pretrained_cfg": fields | {"std": std}}
        (directory / "config.json").write_text(json.dumps(config))

    def expected(image: Image.Image) -> Scores:
        resized = torchvision.resize(image, shorter, FILTERS[filter])
        cropped = torchvision.center_crop(resized, 224, 224)
        pixels = (np.asarray(cropped, np.float32) / 255 - np.array(mean, np.float32)) / np.array(
            std, np.float32
        )
        with torch.inference_mode():
            scores: Scores = model(torch.from_numpy(pixels.transpose(2, 0, 1)[None])).softmax(1)[0].numpy()
        return scores

    return expected


def _settle(model: Any) -> None:
    """Statistics of batch norms as after training, so that activations keep a realistic range."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.inference_mode():
        model.train()(torch.randn(16, 3, 224, 224))
        model.eval()
        model.fc.weight *= 10  # random weights are sure of nothing otherwise


if __name__ == "__main__":
    app()
