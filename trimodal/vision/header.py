"""Reads the header of image bytes before anything is decoded: format, size, frames, orientation.

PNG and WebP are walked here because Pillow would allocate the canvas or warn first, GIF and TIFF for their
frames; the size of others comes from Pillow's own header pass (`image.py`), which allocates nothing. A JPEG
is walked for what no decoder misses: scans that are not there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from trimodal.vision.formats import format_of, what_it_is

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
UPRIGHT = 1
# A progressive JPEG is decoded once a scan. Encoders write about 10; hundreds of empty ones cost minutes.
MOST_SCANS = 50
# Kinds of a JPEG's segments.
_FRAMES = (0xC0, 0xC1, 0xC2)  # whose scans are known here; the last is progressive
_PROGRESSIVE, _SCAN, _END = 0xC2, 0xDA, 0xD9
_ALONE = (0x01, *range(0xD0, 0xD8))  # markers without a length
# Within a scan 0xFF stands before 0 (it is data), a restart, or another 0xFF.
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


class Damaged(Exception):
    """The bytes break their own format or abuse it; the text completes "image: …"."""


@dataclass(frozen=True)
class Header:
    """Size in pixels, None where the format's decoder has to say; frames; raw EXIF bytes."""

    format: str
    size: tuple[int, int] | None = None
    frames: int = 1
    exif: bytes = b""


def read_header(data: bytes) -> Header:
    """Reads the header of a picture's bytes, by content.

    Raises:
        Damaged: another format, truncated, or contradicting itself.
    """
    match format_of(data):
        case "JPEG":
            # Pixel data never holds this marker. Thumbnails in the metadata may, and count a few.
            if (scans := data.count(b"\xff\xda")) > MOST_SCANS:
                raise Damaged(f"a JPEG of {scans} scans; at most {MOST_SCANS} are accepted")
            if _lacks_scans(data):
                raise Damaged("a truncated JPEG file")
            return Header("JPEG")
        case "PNG":
            return _png(data)
        case "WebP":
            return _webp(data)
        case "GIF":
            return _gif(data)
        case "TIFF":
            return _tiff(data)
        case "BMP":
            # Pillow unpacks runs of pixels in Python: seconds for a large one.
            if int.from_bytes(data[14:18], "little") >= 40 and data[30:31] in (b"\1", b"\2"):
                raise Damaged("a BMP file whose pixels are compressed; plain ones are accepted")
            return Header("BMP")
        case "AVIF" | "HEIC" as name:
            return Header(name)
    raise Damaged(what_it_is(data))


def decodes_by_rows(data: bytes) -> bool:
    """Whether a decoder needs to hold no more of a JPEG than a few rows: its first scan has all of it."""
    frame, components = 0, 0
    for kind, start, _ in _jpeg_segments(data):
        if kind in _FRAMES and start + 9 < len(data):
            frame, components = kind, data[start + 9]
        elif kind == _SCAN:
            return 0 < frame < _PROGRESSIVE and data[start + 4 : start + 5] == bytes((components,))
    return False


def tidied_jpeg(data: bytes, spare: int) -> bytes:
    """The file without what stands between its segments, and without `spare` zeros before its end."""
    parts = [data[:2]]
    for kind, start, end in _jpeg_segments(data):
        if kind == _SCAN:
            end = _end_of_scan(data, end)
            if not data[max(start, end - spare) : end].strip(b"\0"):
                end -= spare
        parts.append(data[start:end])
    return b"".join(parts)


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, start and end of each segment, of a scan without its data, up to the end of the picture."""
    at = 2
    while (at := data.find(b"\xff", at)) >= 0 and at + 1 < len(data):
        kind = data[at + 1]
        if kind in (0, 0xFF):
            at += 1 if kind else 2
            continue
        end = at + 2
        if kind not in _ALONE and kind != _END:
            end += int.from_bytes(data[end : end + 2], "big")
        yield kind, at, end
        if kind == _END:
            return
        at = _end_of_scan(data, end) if kind == _SCAN else end


def _end_of_scan(data: bytes, at: int) -> int:
    marker = _AFTER_SCAN.search(data, at)
    return marker.start() if marker else len(data)


def _lacks_scans(data: bytes) -> bool:
    """Whether a JPEG ends before each component has all the bits that its scans began to send.

    Cut between two scans and closed again, a file is sound to a decoder: a colour or the detail is missing.
    """
    bits: dict[int, dict[int, int]] = {}  # component → coefficient → bits that are still to come
    progressive = False
    for kind, start, _ in _jpeg_segments(data):
        body = data[start + 4 : start + 4 + 1024]
        try:
            if kind in _FRAMES:
                bits = {body[6 + 3 * index]: {} for index in range(body[5])}
                progressive = kind == _PROGRESSIVE
            elif kind == _SCAN:
                count = body[0]
                first, last, low = body[1 + 2 * count], body[2 + 2 * count], body[3 + 2 * count] & 15
                for component in body[1 : 1 + 2 * count : 2]:
                    band = range(first, last + 1) if progressive else range(1)
                    bits.get(component, {}).update(dict.fromkeys(band, low if progressive else 0))
                if not progressive and all(bits.values()):
                    return False  # mostly in the first scan, whose data need not be walked
        except IndexError:
            return False  # the decoder says what is wrong
    return any(0 not in sent or any(sent.values()) for sent in bits.values())


def _png(data: bytes) -> Header:
    size, frames, exif, ended = None, 0, b"", False
    for kind, body in _png_chunks(data):
        if kind == b"IHDR" and size is None and len(body) == 13:
            size = struct.unpack(">II", body[:8])
        elif kind == b"acTL":
            if frames or len(body) != 8 or not (frames := int.from_bytes(body[:4], "big")):
                raise Damaged("a PNG whose animation header is damaged")
        elif kind == b"eXIf":
            exif = body
        elif kind == b"IEND":
            ended = True
            break
    if size is None:
        raise Damaged("a PNG without a header")
    if not ended:
        raise Damaged("a truncated PNG file")
    return Header("PNG", size, frames or 1, exif)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each whole chunk; bodies of pixel data are left empty."""
    at = len(PNG_SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        if at + 12 + length > len(data):
            return
        yield kind, b"" if kind == b"IDAT" else data[at + 8 : at + 8 + length]
        at += 12 + length


def _webp(data: bytes) -> Header:
    if len(data) < 30 or len(data) < 8 + int.from_bytes(data[4:8], "little"):
        raise Damaged("a truncated WebP file")
    chunk = data[12:16]
    frames = 1
    if chunk == b"VP8X":
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
        frames = sum(1 for kind in _webp_chunks(data) if kind == b"ANMF") or 1
    elif chunk == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width = int.from_bytes(data[26:28], "little") & 0x3FFF
        height = int.from_bytes(data[28:30], "little") & 0x3FFF
    else:
        raise Damaged("a WebP file whose header is damaged")
    return Header("WebP", (width, height), frames)


def _webp_chunks(data: bytes) -> Iterator[bytes]:
    at = 12
    while at + 8 <= len(data):
        yield data[at : at + 4]
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + length + (length & 1)


def _gif(data: bytes) -> Header:
    """Frames, and the size of the canvas with what is drawn beyond it."""
    frames = 0
    try:
        width, height, flags = struct.unpack_from("<HHB", data, 6)
        at = 13 + _colours(flags)
        while at < len(data) and (kind := data[at]) != 0x3B:
            if kind == 0x2C:
                left, top, w, h, flags = struct.unpack_from("<HHHHB", data, at + 1)
                width, height = max(width, left + w), max(height, top + h)
                frames += 1
                at += 11 + _colours(flags)
            elif kind == 0x21:
                at += 2
            else:
                raise Damaged("a damaged GIF file")
            while length := data[at]:
                at += 1 + length
            at += 1
    except (IndexError, struct.error):
        raise Damaged("a truncated GIF file") from None
    if not frames:
        raise Damaged("a truncated GIF file")
    return Header("GIF", (width, height), frames)


def _colours(flags: int) -> int:
    """Bytes of the table of colours that follows."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _tiff(data: bytes) -> Header:
    """Pages that are no thumbnails or masks of another; a page's size is Pillow's to tell."""
    order = "<" if data[:1] == b"I" else ">"
    pages, seen = 0, set[int]()
    try:
        (at,) = struct.unpack_from(order + "I", data, 4)
        while at and at not in seen:
            seen.add(at)
            (entries,) = struct.unpack_from(order + "H", data, at)
            tags = [struct.unpack_from(order + "HHII", data, at + 2 + 12 * one) for one in range(entries)]
            pages += not any(tag == 254 and value for tag, _, _, value in tags)
            (at,) = struct.unpack_from(order + "I", data, at + 2 + 12 * entries)
    except struct.error:
        raise Damaged("a truncated TIFF file") from None
    return Header("TIFF", None, pages)


def orientation(exif: bytes) -> int:
    """EXIF orientation, 1 to 8; 1 (upright) when there is none or it makes no sense.

    Read by hand: Pillow's reader parses every tag and warns about damaged ones.
    """
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    try:
        if order is None:
            return UPRIGHT
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(entries):
            tag, kind, count, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * entry)
            if (tag, kind, count) == (0x0112, 3, 1):
                return value if 1 <= value <= 8 else UPRIGHT
    except struct.error:
        pass
    return UPRIGHT
