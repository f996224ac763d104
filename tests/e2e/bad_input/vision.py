"""Bad requests to `vision`, over gRPC and HTTP."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tests.e2e.bad_input.server import png
from tests.e2e.bad_input.wire import Tensor, by_both, texts
from tests.vision.pictures import (
    encode,
    exif,
    noise,
    png_chunk,
    png_claiming,
    png_with,
    quarters,
    webp_claiming,
)

GREY16 = encode(Image.fromarray(np.full((16, 16), 257 * 6, np.uint16)), "PNG")
NOISE = noise(64, 64)
FRAMES = {"save_all": True, "append_images": [NOISE]}

# Name, the file, and the sentence that follows "image".
IMAGES = [
    ("no bytes", b"", ": empty; JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC bytes"),
    ("a text", b"not a picture", ": not a JPEG, PNG"),
    ("animated GIF", encode(quarters(), "GIF", **FRAMES), ": an animated GIF file of 2 frames"),
    ("truncated JPEG", encode(NOISE, "JPEG")[:900], ": a truncated JPEG"),
    (
        "PNG bomb 60,000 × 60,000",
        png_claiming(60_000, 60_000),
        ": 60000 × 60000 pixels; at most 16384 a side",
    ),
    (
        "WebP bomb 16,000 × 16,000",
        webp_claiming(16_000, 16_000),
        ": 16000 × 16000 pixels; at most 50000000 in all",
    ),
    ("animated WebP", encode(quarters(), "WEBP", **FRAMES), ": an animated WebP file of 2 frames; a single"),
    ("APNG of 0 frames", png_with(png_chunk(b"acTL", bytes(8)), NOISE), ": a PNG whose animation header"),
    ("50 MB of zeros", bytes(50_000_000), ": 50000000 bytes; at most 25165824"),
]
SERVED = [
    ("CMYK JPEG", encode(NOISE.convert("CMYK"), "JPEG")),
    ("16-bit PNG", GREY16),
    ("EXIF-rotated JPEG", encode(NOISE, "JPEG", exif=exif(6))),
    ("palette PNG with transparency", encode(NOISE.quantize(8), "PNG", transparency=0)),
]
MIXED = texts("image", png(1), b"", png(2), shape=[3, 1])
MANY = texts("image", *[png(1)] * 17, shape=[17, 1])
PIXELS = Tensor("image", "FP32", [1, 3, 8, 8], bytes(4 * 3 * 8 * 8))


def image(data: bytes) -> Tensor:
    return texts("image", data, shape=[1, 1])


ROWS = [
    *(row for name, data, told in IMAGES for row in by_both("vision", name, image(data), f"image{told}")),
    *(row for name, data in SERVED for row in by_both("vision", name, image(data), served=True)),
    *by_both("vision", "one bad image among good ones", MIXED, r"image\[1\]: empty"),
    *by_both("vision", "pixels as bytes", image(bytes(3 * 8 * 8)), "image: not a JPEG, PNG"),
    *by_both("vision", "17 images", MANY, "batch-size must be <= 16", own=False),
    *by_both("vision", "pixels as FP32", PIXELS, "'image' data-type is 'FP32'", own=False),
    *by_both("vision", "no batch dimension", texts("image", png(1)), "shape for input 'image'", own=False),
    *by_both("vision", "unknown input", texts("picture", png(1), shape=[1, 1]), "'picture'", own=False),
    *by_both("vision", "a batch of 0", texts("image", shape=[0, 1]), "'image'.* got 0", own=False),
]
