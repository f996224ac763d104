"""Picture files and artefact directories for the vision tests, made on the spot."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trimodal.manifest import Manifest, write_manifest
from trimodal.vision.preprocess import UPRIGHT

RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 200, 20), (20, 20, 220), (255, 255, 255)


def encode(image: Image.Image, format: str, **choices: object) -> bytes:
    """The bytes of a picture file."""
    file = io.BytesIO()
    image.save(file, format, **choices)
    return file.getvalue()


def quarters(side: int = 64) -> Image.Image:
    """Red, green (above), blue, white (below): tells every orientation from every other."""
    image = Image.new("RGB", (side, side), WHITE)
    half = side // 2
    image.paste(RED, (0, 0, half, half))
    image.paste(GREEN, (half, 0, side, half))
    image.paste(BLUE, (0, half, half, side))
    return image


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    grid = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(grid)


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """The picture as it is stored where EXIF says `orientation`."""
    turn = UPRIGHT.get(orientation)
    back = {
        Image.Transpose.ROTATE_270: Image.Transpose.ROTATE_90,
        Image.Transpose.ROTATE_90: Image.Transpose.ROTATE_270,
    }
    return image if turn is None else image.transpose(back.get(turn, turn))


def heic(image: Image.Image, *others: Image.Image) -> bytes:
    """A HEIC file; skips the test where nothing here writes one."""
    file = io.BytesIO()
    made = pytest.importorskip("pillow_heif").from_pillow(image)
    for other in others:
        made.add_from_pillow(other)
    made.save(file, quality=95)
    return file.getvalue()


def flat_jpeg(factors: tuple[int, int, int], width: int = 64, height: int = 48) -> bytes:
    """A grey JPEG of these sampling factors (0x21: two across, one down), which no encoder here writes."""
    made = bytearray(encode(Image.new("RGB", (width, height), (128, 128, 128)), "JPEG", subsampling=0))
    frame, scan = made.index(b"\xff\xc0"), made.index(b"\xff\xda")
    for component, factor in enumerate(factors):
        made[frame + 11 + 3 * component] = factor
    across, down = (
        8 * max(shift(factor) for factor in factors) for shift in (lambda f: f >> 4, lambda f: f & 15)
    )
    luma, *chroma = ((factor >> 4) * (factor & 15) for factor in factors)
    # Each block: no change of its mean, and its end, by the standard's tables.
    bits = ("001010" * luma + "0000" * sum(chroma)) * (-(-width // across) * -(-height // down))
    bits += "1" * (-len(bits) % 8)
    start = scan + 2 + int.from_bytes(made[scan + 2 : scan + 4], "big")
    return bytes(made[:start]) + int(bits, 2).to_bytes(len(bits) // 8, "big") + b"\xff\xd9"


def rle_bmp() -> bytes:
    """A BMP that claims runs of pixels."""
    made = bytearray(encode(Image.new("P", (8, 8)), "BMP"))
    made[30] = 1
    return bytes(made)


def tiff(*pages: dict[int, int], body: bytes = b"", order: str = "<", kind: str = "I") -> bytes:
    """A TIFF whose pages have these tags; `body` stands at byte 8, `kind` is SHORT or LONG (H, I)."""
    made = struct.pack(order + "2sHI", b"II" if order == "<" else b"MM", 42, 8 + len(body)) + body
    for left, tags in zip(range(len(pages) - 1, -1, -1), pages, strict=True):
        made += struct.pack(order + "H", len(tags))
        for tag, value in sorted(tags.items()):
            field = struct.pack(order + kind, value).ljust(4, b"\0")
            made += struct.pack(order + "HHI", tag, {"H": 3, "I": 4}[kind], 1) + field
        made += struct.pack(order + "I", len(made) + 4 if left else 0)
    return made


def page(width: int = 16, height: int = 16, **tags: int) -> dict[int, int]:
    """Tags of a grey page whose pixels stand at byte 8; others as `t254=1`."""
    size = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: width * height}
    return size | {int(name[1:]): value for name, value in tags.items()}


def gif_claiming(width: int, height: int) -> bytes:
    made = encode(Image.new("P", (8, 8)), "GIF")
    return made[:6] + struct.pack("<HH", width, height) + made[10:]


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, with hardly any pixel data behind it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (
        png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(b"\0" * 64)) + png_chunk(b"IEND", b"")
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


def webp_claiming(width: int, height: int) -> bytes:
    """A VP8X WebP that claims a canvas of up to 2^24 a side."""
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0"
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", len(body)) + body


def png_with(chunk: bytes, image: Image.Image) -> bytes:
    """The image as PNG with one more chunk right behind the header."""
    data = encode(image, "PNG")
    return data[:33] + chunk + data[33:]


def closed(file: bytes, at: int) -> bytes:
    """The first bytes of a picture file, with the end and the lengths that a whole one has."""
    if file[:2] == b"\xff\xd8":
        return file[:at] + b"\xff\xd9"
    if file[:4] == b"RIFF":
        return _closed_webp(file, at)
    start = file.index(b"IDAT") + 4
    ends = start + int.from_bytes(file[start - 8 : start - 4], "big")
    if not start <= at < ends:
        return file[:at] + png_chunk(b"IEND", b"")
    return file[: start - 8] + png_chunk(b"IDAT", file[start:at]) + png_chunk(b"IEND", b"")


def _closed_webp(file: bytes, at: int) -> bytes:
    made = bytearray(file[: max(at, 12)])
    made += bytes(len(made) % 2)
    place = 12
    while place + 8 <= len(made):
        size = int.from_bytes(made[place + 4 : place + 8], "little")
        if place + 8 + size > len(made):
            made[place + 4 : place + 8] = (len(made) - place - 8).to_bytes(4, "little")
            break
        place += 8 + size + size % 2
    made[4:8] = (len(made) - 8).to_bytes(4, "little")
    return bytes(made)


def exif(orientation: int) -> bytes:
    made = Image.Exif()
    made[0x0112] = orientation
    return made.tobytes()


def artefact(directory: Path, *, classes: int = 3, runtime: str = "onnxruntime", **spec: object) -> Path:
    """A classifier's directory without a model: manifest and labels."""
    directory.mkdir(parents=True)
    labels = [f"class {index}" for index in range(classes)]
    (directory / "labels.json").write_text(json.dumps(labels))
    manifest = Manifest(
        task="vision",
        runtime=runtime,
        runtime_version="0",
        precision="fp32",
        source="test",
        source_sha256="none",
        command="python build/vision_onnx.py test",
        shapes={"classes": classes},
        extra={"input": {"height": 8, "width": 8, "resize": "exact", **spec}},
    )
    write_manifest(directory, manifest)
    return directory
