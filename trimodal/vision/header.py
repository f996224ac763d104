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
# Within a scan 0xFF stands before 0 (it is data), a restart, or another 0xFF; elsewhere it is a marker's.
_MARKER = re.compile(rb"\xff[^\x00\xff]")
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")

# Chunks, segments, blocks, tags: each is read in Python, here and by Pillow, and costs others their time.
_MOST_PARTS, _MOST_TILES = 4096, 50_000
_BYTES_OF_PIXELS = 512  # in each part beyond these
_WHOLE = {1: "B", 3: "H", 4: "I", 13: "I"}  # a field's types
_TIFF_TAKES = {  # tag → its name, what it is where it is not there, what is taken
    258: ("BitsPerSample", 1, (1, 2, 4, 8, 16)),
    259: ("Compression", 1, (1, 5, 8, 32773, 32946)),
    262: ("PhotometricInterpretation", 0, (0, 1, 2, 3, 5)),
    339: ("SampleFormat", 1, (1,)),
}
_TIFF_MORE = (34665, 34853, 40965)  # tags of the camera, the place, and others': Pillow reads them all
# … and the kind of page, its size, samples a pixel, planes, the size of a tile.
_TIFF_TAGS = (254, 256, 257, 277, 284, 322, 323, *_TIFF_TAKES, *_TIFF_MORE)
TIFF_TAKEN = (
    "grey, palette, RGB and CMYK of up to 8 bits, or 16, are accepted, plain or by LZW, deflate or PackBits"
)


class Refused(Exception):
    """A file that is not taken: damaged, abused, of another format or too large; completes "image: …"."""


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
        Refused: another format, truncated, or contradicting itself.
    """
    match format_of(data):
        case "JPEG":
            # Counting bytes is quick. They may also be a thumbnail's, or stand behind the picture's end, as
            # the film of a motion photo does: then the segments are walked.
            if data.count(b"\xff\xda") > MOST_SCANS:
                scans = sum(kind == _SCAN for kind, _, _ in _jpeg_segments(data))
                if scans > MOST_SCANS:
                    raise Refused(f"a JPEG of {scans} scans; at most {MOST_SCANS} are accepted")
            if _lacks_scans(data):
                raise Refused("a truncated JPEG file")
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
                raise Refused("a BMP file whose pixels are compressed; plain ones are accepted")
            return Header("BMP")
        case "AVIF" | "HEIC" as name:
            return Header(name)
    raise Refused(what_it_is(data))


def _check_parts(parts: int, format: str, most: int = _MOST_PARTS) -> None:
    if parts > most:
        raise Refused(f"a {format} file of more than {most} parts")


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
    at, parts = 2, 0
    while marker := _MARKER.search(data, at):
        start, kind = marker.start(), data[marker.start() + 1]
        parts += 1 + start - at  # Pillow goes through what stands between byte by byte
        _check_parts(parts, "JPEG")
        end = start + 2
        if kind not in _ALONE and kind != _END:
            end += int.from_bytes(data[end : end + 2], "big")
        yield kind, start, end
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
                raise Refused("a PNG whose animation header is damaged")
        elif kind == b"eXIf":
            exif = body
        elif kind == b"IEND":
            ended = True
            break
    if size is None:
        raise Refused("a PNG without a header")
    if not ended:
        raise Refused("a truncated PNG file")
    return Header("PNG", size, frames or 1, exif)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each whole chunk; bodies of pixel data are left empty."""
    at, parts = len(PNG_SIGNATURE), 0
    while at + 12 <= len(data):
        parts += 1
        _check_parts(parts, "PNG", _MOST_PARTS + len(data) // _BYTES_OF_PIXELS)
        length = int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        if at + 12 + length > len(data):
            return
        yield kind, b"" if kind == b"IDAT" else data[at + 8 : at + 8 + length]
        at += 12 + length


def _webp(data: bytes) -> Header:
    if len(data) < 30 or len(data) < 8 + int.from_bytes(data[4:8], "little"):
        raise Refused("a truncated WebP file")
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
        raise Refused("a WebP file whose header is damaged")
    return Header("WebP", (width, height), frames)


def _webp_chunks(data: bytes) -> Iterator[bytes]:
    """Kinds of the chunks, up to the end that the header names: what stands behind is no part of it."""
    at, parts = 12, 0
    end = 8 + int.from_bytes(data[4:8], "little")
    while at + 8 <= end:
        parts += 1
        _check_parts(parts, "WebP")
        yield data[at : at + 4]
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + length + (length & 1)


def _gif(data: bytes) -> Header:
    """Frames, and the size of the canvas with what is drawn beyond it."""
    frames, blocks = 0, 0
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
                raise Refused("a damaged GIF file")
            blocks += 1
            while (length := data[at]) and blocks <= _MOST_PARTS:
                blocks += kind == 0x21 or length < 64  # pixels are in blocks of 255
                at += 1 + length
            at += 1
            _check_parts(blocks, "GIF")
    except (IndexError, struct.error):
        raise Refused("a truncated GIF file") from None
    if not frames:
        raise Refused("a truncated GIF file")
    return Header("GIF", (width, height), frames)


def _colours(flags: int) -> int:
    """Bytes of the table of colours that follows."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _tiff(data: bytes) -> Header:
    """Pages that are no thumbnails or masks of another, and the first one's size with its tiles.

    libtiff reads more than is taken: what has no range that is known, and what costs more than it looks.
    """
    order = "<" if data[:1] == b"I" else ">"
    pages: list[dict[int, tuple[int, ...]]] = []
    parts = 0
    try:
        (at,) = struct.unpack_from(order + "I", data, 4)
        while at:
            (count,) = struct.unpack_from(order + "H", data, at)
            parts += 1 + count
            _check_parts(parts, "TIFF")
            pages.append(_tiff_tags(data, order, range(at + 2, at + 2 + 12 * count, 12)))
            for start in (pages[-1].get(tag, (len(data),))[0] for tag in _TIFF_MORE):
                parts += int.from_bytes(data[start : start + 2], "little" if order == "<" else "big")
            _check_parts(parts, "TIFF")
            (at,) = struct.unpack_from(order + "I", data, at + 2 + 12 * count)
        first = pages[0]
        size = max(first[256] + first.get(322, ())), max(first[257] + first.get(323, ()))
    except (struct.error, IndexError, KeyError):
        raise Refused("a truncated TIFF file") from None
    whole = [not page.get(254, (0,))[0] & 5 for page in pages]
    if not whole[0]:
        raise Refused(f"a TIFF file that begins with a preview or a mask; {TIFF_TAKEN}")
    for tag, (name, default, taken) in _TIFF_TAKES.items():
        for value in first.get(tag, (default,)):
            if value not in taken or (tag, value) == (262, 0) and 16 in first.get(258, ()):
                raise Refused(f"a TIFF file of {name} {value}; {TIFF_TAKEN}")
    return Header("TIFF", size, sum(whole))


def _tiff_tags(data: bytes, order: str, entries: range) -> dict[int, tuple[int, ...]]:
    """The values of the tags that are looked at here."""
    found: dict[int, tuple[int, ...]] = {}
    for at in entries:
        tag, kind, count = struct.unpack_from(order + "HHI", data, at)
        if tag in (273, 324) and count > _MOST_TILES:
            raise Refused(f"a TIFF file of {count} tiles or strips; at most {_MOST_TILES} are accepted")
        if tag in _TIFF_TAGS:
            # Where a tag is there twice, decoders differ on which of them counts.
            if tag in found or kind not in _WHOLE or not 0 < count <= 8:
                raise Refused(f"a TIFF file whose tag {tag} is damaged")
            form = f"{order}{count}{_WHOLE[kind]}"
            inside = struct.calcsize(form) <= 4
            start = at + 8 if inside else struct.unpack_from(order + "I", data, at + 8)[0]
            found[tag] = struct.unpack_from(form, data, start)
    return found


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
