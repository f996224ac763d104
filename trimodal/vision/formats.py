"""Tells what a file's bytes are by how they begin: pictures that are decoded, and what else people send."""

from __future__ import annotations

import base64
import re

TAKEN = "JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or HEIC"
_STARTS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "BigTIFF",
    b"MM\0+": "BigTIFF",
    b"%PDF-": "PDF",
    b"\xff\x0a": "JPEG XL",
    b"\0\0\0\x0cJXL ": "JPEG XL",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"8BPS": "Photoshop",
    b"\0\0\1\0": "ICO",
    b"ID3": "MP3",
    b"\xff\xfb": "MP3",
    b"\xff\xf3": "MP3",
    b"OggS": "Ogg",
    b"fLaC": "FLAC",
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"PK\x03\x04": "ZIP",
    b"\x1f\x8b": "gzip",
}
# Of ISO's containers. "mif1" and "msf1" name no coding: the brands behind them may.
_BRANDS = {
    "AVIF": {b"avif", b"avis"},
    "HEIC": {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"},
}
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
_SVG = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:<\?xml|<!--|<!DOCTYPE svg)[^\0]*?)?<svg[\s>]", re.I)
_BASE64 = re.compile(rb"[A-Za-z0-9+/\-_\r\n]{16,}={0,2}\s*")
_ANY = 4096  # bytes that are looked at


def format_of(data: bytes) -> str:
    """The format's name; "" where it is none that is known here."""
    for start, name in _STARTS.items():
        if data.startswith(start):
            return name
    if data[:4] == b"RIFF":
        return {b"WEBP": "WebP", b"WAVE": "WAV", b"AVI ": "AVI"}.get(data[8:12], "")
    if data[4:8] == b"ftyp":
        brands = data[8 : max(12, min(int.from_bytes(data[:4], "big"), 256))]
        named = {brands[at : at + 4] for at in range(0, len(brands), 4) if at != 4}  # 4: a version
        return next((name for name, known in _BRANDS.items() if named & known), "MP4 or QuickTime")
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "BMP"
    return "SVG" if _SVG.match(data[:_ANY]) else ""


def what_it_is(data: bytes) -> str:
    """Completes "image: …" for bytes that are no picture which is decoded, with what to send."""
    if data[:5].lower() == b"data:":
        return "a data URL: the file's own bytes are needed; the gateway takes data URLs"
    if _BASE64.fullmatch(data[:_ANY]):
        text = b"".join(data[:_ANY].split()).translate(bytes.maketrans(b"-_", b"+/"))
        if format_of(base64.b64decode(text[: len(text) // 4 * 4])):
            return "base64 text: the file's own bytes are needed; the gateway takes data URLs"
    name = format_of(data)
    article = "an" if name[:3] in ("MP3", "MP4", "SVG", "AVI", "ICO", "Ogg") else "a"
    return f"{article} {name} file, not a {TAKEN} file" if name else f"not a {TAKEN} file"
