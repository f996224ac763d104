"""Reads images for calibrating and checking a vision build: a folder of them, or the project's own photos.

All of them take the server's own way through `trimodal.vision`, so that what is calibrated is what will be
served. Where there are fewer than are wanted, parts of each are taken, mirrored or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ImageOps
from steps.artefact import evenly

from trimodal.errors import ArtefactError, RequestError, legible
from trimodal.paths import data_directory
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Pixels
from trimodal.vision.image import Picture, decode
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.settings import Limits

FEWEST, MOST = 8, 512
CALIBRATING, CHECKING = 128, 64  # views
SMALLEST_SHARE = 0.6  # of a side that a part has at least
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
HELD = 8  # pictures in memory at once: one of 12 megapixels takes 48 MB, as Pillow keeps 4 bytes a pixel


@dataclass(frozen=True)
class ImageSet:
    """Prepared pixels uint8[N, 3, H, W], and where they are from."""

    pixels: Pixels
    origin: str


def load_images(folder: Path | None, spec: InputSpec) -> tuple[ImageSet, ImageSet]:
    """Images for calibrating and others for the check, of a folder (recursive) or the project's photos.

    Two halves of the folder where that gives enough of them; else views of all, no view in both sets. The
    first views of the check are the whole images.

    Raises:
        ArtefactError: no such folder, or fewer than 8 usable images.
    """
    folder = folder or data_directory() / "samples" / "photos"
    name = legible(folder.name)
    if not folder.is_dir():
        raise ArtefactError(f"no images at {folder}: name a folder of them with --images")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    opened = lru_cache(HELD)(lambda file: decode(file.read_bytes(), Limits()))
    files = [file for file in evenly(files, MOST) if _is_usable(file, opened)]
    if len(files) < FEWEST:
        raise ArtefactError(f"{folder} holds {len(files)} usable images: at least {FEWEST} are needed")
    if len(files) >= 2 * CALIBRATING:
        halves = [_prepared(map(opened, part), len(part), spec) for part in (files[::2], files[1::2])]
        return ImageSet(halves[0], f"{name}, every other"), ImageSet(halves[1], f"{name}, the rest")
    generator = np.random.default_rng(0)
    calibration = _prepared(_views(files, opened, CALIBRATING, generator), CALIBRATING, spec)
    more = max(0, CHECKING - len(files))
    checked = chain(map(opened, files), _views(files, opened, more, generator))
    told = f"{len(files)} of {name}"
    return (
        ImageSet(calibration, f"parts of {told}, half of them mirrored"),
        ImageSet(_prepared(checked, len(files) + more, spec), f"{told}, whole and other parts of them"),
    )


def normalised(pixels: Pixels, spec: InputSpec) -> npt.NDArray[np.float32]:
    """float32[N, 3, H, W] of uint8 pixels: (value / 255 − mean) / std."""
    mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (spec.mean, spec.std))
    return np.asarray((pixels.astype(np.float32) / 255 - mean) / std, np.float32)


def _is_usable(file: Path, opened: Callable[[Path], Picture]) -> bool:
    try:
        opened(file)
    except RequestError as error:
        print(f"skipped {legible(file.name)}: {error}")
        return False
    return True


def _prepared(pictures: Iterable[Picture], count: int, spec: InputSpec) -> Pixels:
    prepare = Preprocessor(spec, Limits())
    pixels = np.empty((count, *prepare.shape), np.uint8)
    for picture, out in zip(pictures, pixels, strict=True):
        prepare.lay_out(prepare.fit(picture), out)
    return pixels


def _views(
    files: list[Path], opened: Callable[[Path], Picture], count: int, generator: np.random.Generator
) -> Iterator[Picture]:
    """`count` parts of the pictures in turn, of random sizes and places, every other one mirrored."""
    for index in range(count):
        whole = opened(files[index % len(files)])
        width, height = (max(1, int(side * generator.uniform(SMALLEST_SHARE, 1))) for side in whole.rgb.size)
        left = int(generator.integers(0, whole.rgb.width - width + 1))
        top = int(generator.integers(0, whole.rgb.height - height + 1))
        part = whole.rgb.crop((left, top, left + width, top + height))
        mirrored = index // len(files) % 2
        yield Picture(ImageOps.mirror(part) if mirrored else part, whole.orientation)
