"""Image bytes: files, files spoilt, and files that were cut and closed again."""

from __future__ import annotations

import warnings

import numpy as np
from PIL import Image

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import spoil_bytes
from tests.fuzz.targets.promise import Broken, promise
from tests.vision.pictures import closed, encode, exif, noise, quarters
from trimodal.errors import InvalidArgument
from trimodal.vision.artefact import InputSpec
from trimodal.vision.image import decode
from trimodal.vision.preprocess import Preprocessor
from trimodal.vision.settings import Limits

LIMITS = Limits(max_bytes=1 << 20, max_pixels=1 << 18, max_side=2048)
_FIT = Preprocessor(InputSpec(height=24, width=16, resize_to=24), LIMITS)
_GREY16 = Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20) * 100)
FILES = {
    "jpeg": encode(noise(40, 30), "JPEG", exif=exif(6)),
    "jpeg 4:4:4": encode(quarters(32), "JPEG", subsampling=0),
    "jpeg restarts": encode(noise(40, 30), "JPEG", restart_marker_blocks=2),
    "jpeg progressive": encode(noise(40, 30), "JPEG", progressive=True),
    "jpeg grey": encode(noise(40, 30).convert("L"), "JPEG"),
    "jpeg grey progressive": encode(noise(40, 30).convert("L"), "JPEG", progressive=True),
    "jpeg cmyk": encode(noise(40, 30).convert("CMYK"), "JPEG"),
    "png": encode(noise(24, 20), "PNG", exif=exif(3)),
    "png palette": encode(noise(24, 20).quantize(16), "PNG", transparency=3),
    "png grey16": encode(_GREY16, "PNG"),
    "png alpha": encode(noise(24, 20).convert("RGBA"), "PNG"),
    "webp": encode(noise(24, 20), "WEBP", exif=exif(8)),
    "webp plain": encode(noise(24, 20), "WEBP"),
    "webp lossless": encode(noise(24, 20).convert("RGBA"), "WEBP", lossless=True),
    "webp alpha": encode(noise(24, 20).convert("RGBA"), "WEBP"),
}
NAMES = tuple(FILES)
# Nothing in these tells of a cut that was closed again.
OTHERS = {name: encode(noise(24, 20), name.upper()) for name in ("gif", "bmp", "tiff", "avif")}
OTHERS["tiff lzw"] = encode(noise(24, 20), "TIFF", compression="tiff_lzw")


def run(data: bytes) -> None:
    """Decodes and prepares what the bytes choose; the first byte says how they choose."""
    choices = Choices(data)
    kind = choices.integer(0, 2)
    if kind == 0:
        _read(choices.rest(), choices.pick((0, 8)))
    elif kind == 1:
        picture = (FILES | OTHERS)[choices.pick((*NAMES, *OTHERS))]
        _read(spoil_bytes(choices, picture), choices.pick((0, 8)))
    else:
        cut_and_closed(choices.pick(NAMES), choices.integer(0, 65_535) / 65_536)


def _read(file: bytes, at_least: int) -> None:
    with promise(InvalidArgument), warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = decode(file, LIMITS, at_least=at_least)
        if picture.rgb.mode != "RGB" or picture.orientation not in range(1, 9):
            raise Broken(f"{picture}")
        _FIT.prepare(file, np.empty(_FIT.shape, np.uint8))


def cut_and_closed(name: str, share: float) -> None:
    """A file of which only a share is left, made whole in form, is refused, unless all pixels are there."""
    file = FILES[name]
    cut = closed(file, int(len(file) * share))
    with promise(InvalidArgument):
        seen = np.asarray(decode(cut, LIMITS).rgb)
        if not np.array_equal(seen, np.asarray(decode(file, LIMITS).rgb)):
            raise Broken(f"{name}: cut at {share:.3f} and closed again, it is read as a whole picture")
