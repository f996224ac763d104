"""Reads images for calibrating and checking a vision build, or makes them up for random weights.

All of them take the server's own way through `trimodal.vision`, so that what is
calibrated is what will be served.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from steps.artefact import evenly

from trimodal.errors import ArtefactError, RequestError
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.image import Picture
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.settings import Limits

FEWEST, MOST = 16, 512
Truth = npt.NDArray[np.int64]
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


@dataclass(frozen=True)
class ImageSet:
    """Prepared pixels uint8[N, 3, H, W], the true classes where they are known, and where they are from."""

    pixels: Pixels
    truth: Truth | None
    origin: str


def load_images(source: Path, spec: InputSpec) -> ImageSet:
    """From a folder of images (recursive) or an .npz with `images` uint8[N, H, W] or [N, H, W, 3] and,
    optionally, `labels` int[N]. At most 512 are taken, evenly over the sorted names.

    Raises:
        ArtefactError: fewer than 16 usable images, or an .npz of another kind.
    """
    prepare = Preprocessor(spec, Limits())
    truth = None
    if source.is_dir():
        files = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
        pixels = np.empty((min(len(files), MOST), *prepare.shape), np.uint8)
        count = 0
        for path in evenly(files, MOST):
            try:
                prepare.prepare(path.read_bytes(), pixels[count])
            except RequestError as error:
                print(f"skipped {path.name}: {error}")
                continue
            count += 1
        pixels = pixels[:count]
    elif source.is_file():
        images, truth = _read_npz(source)
        pixels = np.empty((len(images), *prepare.shape), np.uint8)
        for image, out in zip(images, pixels, strict=True):
            prepare.lay_out(prepare.fit(Picture(Image.fromarray(image).convert("RGB"), 1)), out)
    else:
        raise ArtefactError(f"no images at {source}: name a folder or an .npz file")
    if len(pixels) < FEWEST:
        raise ArtefactError(f"{source} holds {len(pixels)} usable images: at least {FEWEST} are needed")
    return ImageSet(pixels, truth, source.name)


def random_images(spec: InputSpec, count: int, seed: int) -> ImageSet:
    """Blobs of colour at several scales: unlike plain noise, they differ in what a network sees of them."""
    generator = np.random.default_rng(seed)
    prepare = Preprocessor(spec, Limits())
    pixels = np.empty((count, *prepare.shape), np.uint8)
    for out in pixels:
        canvas = np.zeros((spec.height, spec.width, 3), np.float32)
        for cells in (2, 5, 16, 64):
            grid = generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
            layer = Image.fromarray(grid).resize((spec.width, spec.height), Image.Resampling.BICUBIC)
            canvas += generator.uniform(0, 1) * (np.asarray(layer, np.float32) - 128)
        image = Image.fromarray(np.clip(canvas + 128, 0, 255).astype(np.uint8))
        prepare.lay_out(image, out)
    return ImageSet(pixels, None, f"{count} random images, seed {seed}")


def normalised(pixels: Pixels, spec: InputSpec) -> npt.NDArray[np.float32]:
    """float32[N, 3, H, W] of uint8 pixels, in the words of the checkpoint: (value / 255 − mean) / std."""
    mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (spec.mean, spec.std))
    return np.asarray((pixels.astype(np.float32) / 255 - mean) / std, np.float32)


def _read_npz(source: Path) -> tuple[Pixels, Truth | None]:
    try:
        with np.load(source, allow_pickle=False) as file:
            images = file["images"]
            labels = file["labels"] if "labels" in file.files else None
    except Exception as error:  # zipfile, numpy and KeyError, depending on what is wrong.
        raise ArtefactError(f"{source} is not an .npz with 'images' ({type(error).__name__})") from None
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise ArtefactError(f"{source}: 'images' must be uint8 [N, H, W] or [N, H, W, 3]")
    if labels is not None and labels.shape != (len(images),):
        raise ArtefactError(f"{source}: 'labels' must hold one class for each of the {len(images)} images")
    chosen = evenly(list(range(len(images))), MOST)
    return images[chosen], None if labels is None else labels[chosen].astype(np.int64)
