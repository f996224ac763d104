"""Trains the demo's digit classifier and writes build/demo/vision: checkpoint, calibration images, samples.

    python build/demo/train_vision.py

1,797 scanned digits (8 × 8 greys, bundled with scikit-learn) are rendered as picture files of many sizes,
as JPEG and PNG, light on dark and dark on light, and read back the way the server reads them. One in five
is held out of training by a fixed split. It builds no engine: build/vision_onnx.py does.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trimodal.build_support import progress, report
from trimodal.vision.artefact import InputSpec
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.settings import Limits

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).parent
SPEC = InputSpec(height=32, width=32, resize="exact", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
RENDERINGS = 6
EPOCHS = 26
BATCH = 64
Digits = NDArray[np.float64]
"""Pictures of 8 × 8, 0 to 16."""
Labelled = tuple[Digits, NDArray[np.int64]]
FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "vision", help="the checkpoint's folder")
    out = parser.parse_args().out

    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    sys.path.insert(0, str(HERE.parent))
    from steps.vision.images import normalised
    from steps.vision.models import ARCHITECTURES

    started = time.perf_counter()
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    digits = load_digits()
    train, held, train_truth, held_truth = train_test_split(
        digits.images, digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    with progress("render", (len(train) * RENDERINGS) + 2 * len(held)) as advance:
        pixels = prepared([render(digit, generator) for digit in train for _ in range(RENDERINGS)], advance)
        shown = {
            "dark on light": prepared([page(digit, "PNG", 128) for digit in held], advance),
            "light on dark": prepared([page(digit, "JPEG", 64, dark=False) for digit in held], advance),
        }
    truth = np.repeat(train_truth, RENDERINGS)

    model = ARCHITECTURES["digits-resnet"](num_classes=10)
    fit(model, torch.from_numpy(normalised(pixels, SPEC)), torch.from_numpy(truth))
    model.eval()
    with torch.inference_mode():
        accuracy = {
            f"held-out accuracy, {name}": float(
                (model(torch.from_numpy(normalised(x, SPEC))).argmax(1).numpy() == held_truth).mean()
            )
            for name, x in shown.items()
        }

    write(out, model, (train, train_truth), (held, held_truth))
    parameters = sum(weight.numel() for weight in model.parameters())
    seconds = round(time.perf_counter() - started)
    report("digit classifier", {"parameters": parameters, **accuracy, "seconds": seconds})


def page(
    digit: Digits,
    format: str,
    side: int,
    *,
    dark: bool = True,
    filter: Image.Resampling = Image.Resampling.BICUBIC,
    **choices: Any,
) -> bytes:
    """A picture file of `digit` (8 × 8, 0 to 16), `side` pixels square; `dark`: dark ink on light paper."""
    grey = np.round(np.clip(digit / 16, 0, 1) * 255).astype(np.uint8)
    small = Image.fromarray(255 - grey if dark else grey)
    file = io.BytesIO()
    small.resize((side, side), filter).save(file, format, **choices)
    return file.getvalue()


def render(digit: Digits, generator: np.random.Generator) -> bytes:
    """`page` with a size, format, filter, quality and polarity drawn at random."""
    side, dark = int(generator.integers(24, 200)), bool(generator.integers(2))
    filter = FILTERS[generator.integers(len(FILTERS))]
    if generator.integers(2):
        return page(digit, "JPEG", side, dark=dark, filter=filter, quality=int(generator.integers(50, 96)))
    return page(digit, "PNG", side, dark=dark, filter=filter)


def prepared(files: list[bytes], advance: Callable[[], None]) -> NDArray[np.uint8]:
    """uint8[N, 3, 32, 32] of picture files, as the server prepares them."""
    preprocessor = Preprocessor(SPEC, Limits())
    pixels = np.empty((len(files), *preprocessor.shape), np.uint8)
    for data, out in zip(files, pixels, strict=True):
        preprocessor.prepare(data, out)
        advance()
    return pixels


def fit(model: torch.nn.Module, pixels: torch.Tensor, truth: torch.Tensor) -> None:
    """AdamW under one cosine, each epoch over one rendering of every digit, slightly moved and turned."""
    import torch
    from torch.nn import functional

    steps = EPOCHS * (len(pixels) // RENDERINGS // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.2)
    model.train()
    with progress("train", steps) as advance:
        for _ in range(steps):
            chosen = torch.randint(len(pixels), (BATCH,))
            logits = model(moved(pixels[chosen]))
            loss = functional.cross_entropy(logits, truth[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            advance()


def moved(pixels: torch.Tensor) -> torch.Tensor:
    """Each picture shifted up to 8 %, turned up to 10°, scaled up to 12 % and changed in contrast."""
    import torch
    from torch.nn import functional

    count = len(pixels)
    angle = (torch.rand(count) * 2 - 1) * 0.175
    scale = 1 + (torch.rand(count) * 2 - 1) * 0.12
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0], theta[:, 0, 1] = scale * angle.cos(), -scale * angle.sin()
    theta[:, 1, 0], theta[:, 1, 1] = scale * angle.sin(), scale * angle.cos()
    theta[:, :, 2] = (torch.rand(count, 2) * 2 - 1) * 0.16
    grid = functional.affine_grid(theta, list(pixels.shape), align_corners=False)
    turned = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
    return turned * (0.6 + 0.4 * torch.rand(count, 1, 1, 1))


def write(out: Path, model: torch.nn.Module, train: Labelled, held: Labelled) -> None:
    """Checkpoint, calibration.npz (of training), evaluation.npz (held out) and twenty samples (held out)."""
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    config = {
        "architecture": "digits-resnet",
        "num_classes": 10,
        "input": SPEC.model_dump(mode="json"),
        "labels": [str(value) for value in range(10)],
        "description": "handwritten digits, dark on light or light on dark",
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(model.state_dict(), out / "model.safetensors")
    for name, (images, truth), count in (("calibration", train, 128), ("evaluation", held, 360)):
        pages = [page(image, "PNG", 32, dark=index % 2 == 0) for index, image in enumerate(images[:count])]
        greys = np.stack([np.asarray(Image.open(io.BytesIO(data))) for data in pages])
        np.savez_compressed(out / f"{name}.npz", images=greys, labels=truth[:count].astype(np.int64))

    write_samples(out / "samples", *held)


def write_samples(folder: Path, images: Digits, truth: NDArray[np.int64]) -> None:
    """Two files of each digit, a and b: the first two held-out pictures, in other formats and sizes."""
    folder.mkdir(exist_ok=True)
    for value in range(10):
        first, second = images[np.flatnonzero(truth == value)[:2]]
        odd, size = bool(value % 2), value % 3
        for name, image, png, dark, side in (
            ("a", first, odd, value not in (3, 8), (64, 96, 128)[size]),
            ("b", second, not odd, value not in (1, 6), (150, 80, 48)[size]),
        ):
            format, suffix = ("PNG", "png") if png else ("JPEG", "jpg")
            (folder / f"digit-{value}-{name}.{suffix}").write_bytes(page(image, format, side, dark=dark))


if __name__ == "__main__":
    main()
