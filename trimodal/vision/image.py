"""Decodes a picture's file to RGB within limits, or refuses it with one sentence.

The format is told by content alone, and opened by its own decoder; no other is tried. Limits are checked
from the header, before a pixel is decoded. Colour: palette, grey, CMYK and one-bit become RGB; 16 bits are
scaled to 8; what is transparent is laid on white. Animated files are refused
rather than answered by a first frame that may show nothing of the rest. The EXIF
orientation is reported, not applied (`preprocess.py` turns the small result).
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from trimodal.errors import InvalidArgument
from trimodal.vision.formats import TAKEN
from trimodal.vision.header import (
    TIFF_TAKEN,
    Header,
    Refused,
    decodes_by_rows,
    orientation,
    read_header,
    tidied_jpeg,
)
from trimodal.vision.settings import Limits


@dataclass(frozen=True)
class Picture:
    """Decoded pixels and the EXIF orientation (1 to 8) in which they are to be seen."""

    rgb: Image.Image
    orientation: int


class _Jpeg(JpegImagePlugin.JpegImageFile):
    def _read_dpi_from_exif(self) -> None:
        """Not wanted here, and it warns about damaged EXIF."""


COLOURS_OF_JPEG = ("RGB", "L")  # Pillow's names; the others are for printing
# libjpeg reads more kinds of subsampling than TurboJPEG's interface has names for.
_UNKNOWN_SUBSAMPLING = "Could not determine subsampling"
_TOO_MANY = re.compile(r"(\d+) extraneous bytes before marker 0x(\w+)")

_SHRUNK = 4  # times `max_pixels`: what a JPEG may have that is decoded at half its size
# Of TIFF, after what its header refuses: premultiplied alpha, for one, is not read.
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "I;16", "I;16B")
_SIXTEEN_BITS = ("I", "I;16", "I;16B", "I;16L", "I;16N")

# Opened as what they are: Image.open would try other formats, and check sizes against a global of its own.
READERS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": _Jpeg,
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
}


def _reader(format: str) -> type[ImageFile.ImageFile]:
    """The decoder of a format. Raises: Refused where it is not installed."""
    if format in READERS:
        return READERS[format]
    if format == "AVIF":
        try:
            from PIL import AvifImagePlugin  # Pillow 11.3
        except ImportError:
            AvifImagePlugin = None  # type: ignore[assignment]
        if AvifImagePlugin is None or not AvifImagePlugin.SUPPORTED:
            raise Refused(
                'an AVIF file, which this server\'s Pillow does not read: pip install "pillow>=11.3"'
            )
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # the images of a batch are decoded side by side already
        return AvifImagePlugin.AvifImageFile
    try:
        from pillow_heif import HeifImageFile, options
    except ImportError:
        hint = "a HEIC file, which this server does not read without pillow-heif: pip install pillow-heif"
        raise Refused(hint) from None
    options.DECODE_THREADS = 1
    options.THUMBNAILS = options.DEPTH_IMAGES = options.AUX_IMAGES = False
    heif: type[ImageFile.ImageFile] = HeifImageFile
    return heif


def decode(data: bytes, limits: Limits, *, at_least: int = 0, name: str = "image") -> Picture:
    """Decodes the picture in a file's bytes; `name` is the field that errors name, as "image[3]".

    `at_least` are the pixels of the shorter side that are needed (0: full size): a larger JPEG may be decoded
    at 1/2, 1/4 or 1/8 of its size as long as it stays at or above that. A JPEG of up to 4 times `max_pixels`,
    as telephones of 108 and 200 megapixels write them, is decoded at half its size: no more memory than
    others take.

    Raises InvalidArgument: not such a file, damaged, truncated, animated or over a limit.
    """
    if not data:
        raise InvalidArgument(f"{name}: empty; {TAKEN} bytes are needed")
    if len(data) > limits.max_bytes:
        raise InvalidArgument(f"{name}: {len(data)} bytes; at most {limits.max_bytes} are accepted")
    try:
        return _decode(data, read_header(data), limits, at_least)
    except Refused as problem:
        raise InvalidArgument(f"{name}: {problem}") from None


def _decode(data: bytes, header: Header, limits: Limits, at_least: int) -> Picture:
    """The picture. Raises: Refused."""
    _check_frames(header.frames, header.format)
    if header.size is not None:
        _check_size(header.size, limits.max_pixels, limits)
    reader = _reader(header.format)
    try:
        source = reader(io.BytesIO(data))
        large = source.width * source.height > limits.max_pixels
        shrinks = (
            large and header.format == "JPEG" and source.mode in COLOURS_OF_JPEG and decodes_by_rows(data)
        )
        _check_size(source.size, limits.max_pixels * (_SHRUNK if shrinks else 1), limits)
        if header.format in ("AVIF", "HEIC"):
            _check_frames(getattr(source, "n_frames", 1), header.format)
        if source.mode not in _MODES and header.format == "TIFF":
            raise Refused(f"a TIFF file of {source.mode} pixels; {TIFF_TAKEN}")
        upright = orientation(header.exif or _exif(source.info))
        if header.format == "JPEG":
            if shrinks:
                at_least = max(1, min(at_least or max(source.size), min(source.size) // 2))
            printed = source.mode not in COLOURS_OF_JPEG
            try:
                decoded = _jpeg(data, source.size, 1 if printed else at_least)
            except ValueError as error:
                if _UNKNOWN_SUBSAMPLING not in str(error):
                    raise
            else:
                if not printed:
                    return Picture(Image.fromarray(decoded), upright)
            if at_least:
                source.draft(None, (at_least, at_least))
        source.load()
        return Picture(_rgb(source), upright)
    except Refused:
        raise
    except Exception as error:  # Pillow's decoders raise exceptions of any type on damaged bytes.
        cut = any(word in str(error).lower() for word in ("truncated", "premature end"))
        state = "a truncated" if cut else "a damaged"
        raise Refused(f"{state} {header.format} file") from None


def _jpeg(data: bytes, size: tuple[int, int], at_least: int) -> NDArray[np.uint8]:
    """Decodes a JPEG by libjpeg-turbo itself: Pillow's pixels in less time, but for colours of printing.

    It raises ValueError where libjpeg warns, while Pillow takes a file that was cut and closed again, or
    damaged in the middle, for a whole one. Bytes too many between segments, and zeros before the end, as
    cameras leave them, are no damage.
    """
    scale = next((each for each in (8, 4, 2) if at_least and min(size) // each >= at_least), 1)
    width, height = (-(-side // scale) for side in size)
    sizes = {"min_height": height, "min_width": width}
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB", **sizes)
    except ValueError as error:
        # The last warning of several; those before it come up when there are no bytes too many.
        if not (warning := _TOO_MANY.search(str(error))):
            raise
        tidied = tidied_jpeg(data, int(warning[1]) if warning[2] == "d9" else 0)
        pixels = simplejpeg.decode_jpeg(tidied, "RGB", **sizes)
    return pixels


def _exif(info: dict[Any, Any]) -> bytes:
    exif = info.get("exif", b"")
    return exif if isinstance(exif, bytes) else b""


def _check_frames(frames: int, format: str) -> None:
    if frames > 1 and format == "TIFF":
        raise Refused(f"a TIFF file of {frames} pages; a single one is accepted")
    if frames > 1:
        raise Refused(f"an animated {format} file of {frames} frames; a single one is accepted")


def _check_size(size: tuple[int, int], max_pixels: int, limits: Limits) -> None:
    width, height = size
    told = f"{width} × {height} pixels"
    if min(size) < 1:
        raise Refused(f"{told}; at least 1 a side are needed")
    if max(size) > limits.max_side:
        raise Refused(f"{told}; at most {limits.max_side} a side are accepted")
    if width * height > max_pixels:
        raise Refused(f"{told}; at most {max_pixels} in all are accepted")


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BITS:  # Sixteen bits of grey: convert("L") would clip them, not scale.
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        white = Image.new("RGB", seen.size, "white")
        white.paste(seen, mask=seen.getchannel("A"))
        return white
    return image if image.mode == "RGB" else image.convert("RGB")
