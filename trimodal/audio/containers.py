"""Decodes what libsndfile does not know (m4a, webm, wma, AMR, G.722) with FFmpeg, through PyAV.

The format is chosen here, by the file's first bytes: FFmpeg's own probing takes a text that begins with
"ffconcat version 1.0" for a list of other files, a playlist for addresses, and opens them. FFmpeg
reads nothing but the file object that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from itertools import chain, groupby, islice
from typing import Any, BinaryIO

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples

_MP3 = rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"
# How files begin → FFmpeg's demuxer, none of which opens other files.
_BEGINNINGS = {
    rb".{4}ftyp": "mov",
    rb"\x1a\x45\xdf\xa3": "matroska",
    rb"RIFF.{4}WAVE": "wav",
    rb"FORM.{4}AIF[FC]": "aiff",
    rb"OggS": "ogg",
    rb"fLaC": "flac",
    _MP3: "mp3",
    rb"\xff[\xf0\xf1\xf8\xf9]": "aac",
    rb"\x00\x00\x01\xba": "mpeg",
    rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "asf",
    rb"caff": "caf",
    rb"#!AMR": "amr",
}
# A page of Ogg whose flags say that a stream begins (RFC 3533), a FLAC with its first block (RFC 9639), and
# the bytes of an MP3 in its first frame, behind the number of its frames where that is told, too.
_OGG_BEGINS = re.compile(rb"OggS\0[\x02\x03\x06\x07].{20}.", re.DOTALL)
_FLAC_BEGINS = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")
_MP3_LENGTH = re.compile(
    rb"(?:Xing|Info)\0\0\0(?:[\x03\x07\x0b\x0f].{4}(.{4})|[\x02\x06\x0a\x0e](.{4}))", re.DOTALL
)
_LEAST_MP3 = 2048  # more than a frame: some encoders leave the first frame out of what they tell
_MOST_RECORDINGS = 10_000
# Files without a header say by their names what they are.
_NAMED = {".g722": "g722"}


def container_of(file: BinaryIO, name: str) -> str | None:
    """FFmpeg's name of a file's format, by its beginning, else by the end of its name."""
    file.seek(0)
    beginning = file.read(16)
    file.seek(0)
    for pattern, container in _BEGINNINGS.items():
        if re.match(pattern, beginning, re.DOTALL):
            return container
    return next((kind for ending, kind in _NAMED.items() if name.lower().endswith(ending)), None)


def beginnings(file: BinaryIO, container: str | None) -> list[int]:
    """Where recordings begin in a file: more than one after `cat a.mp3 b.mp3`, or where a radio was kept.

    libsndfile (1.2.2) ends where the first does, without an error.
    """
    look = {"ogg": _in_ogg, "flac": _in_flac, "mp3": _in_mp3}.get(container or "")
    return [0, *(islice(look(file), _MOST_RECORDINGS) if look else ())]


def _in_ogg(file: BinaryIO) -> Iterator[int]:
    """Pages that begin a stream, unless the page before them does, too."""
    behind = 0
    for at, page in _places(file, _OGG_BEGINS):
        if at > behind:
            yield at
        behind = at + 27 + page[26] + sum(page[27 : 27 + page[26]])


def _in_flac(file: BinaryIO) -> Iterator[int]:
    return (at for at, _ in _places(file, _FLAC_BEGINS) if at)


def _in_mp3(file: BinaryIO) -> Iterator[int]:
    """Tags and frames where the first frame of the recording before says that it ends."""
    at = 0
    while True:
        file.seek(first := at)
        if (head := file.read(10)).startswith(b"ID3") and len(head) == 10:
            first += 10 + sum(part << shift for part, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
            file.seek(first)
            head = b""
        told = _MP3_LENGTH.search(head + file.read(64))
        at = first + int.from_bytes(told[1] or told[2], "big") if told else 0
        if at < first + _LEAST_MP3:
            return
        file.seek(at)
        behind = file.read(_LEAST_MP3)
        if behind.startswith(b"TAG"):  # of the recording before
            at, behind = at + 128, behind[128:]
        if len(behind) < _LEAST_MP3 - 128 or not re.match(_MP3, behind):
            return
        yield at


def _places(file: BinaryIO, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, bytes]]:
    """Where it matches, and up to 282 bytes from there on: the longest header of a page."""
    at, size = 0, 1 << 20
    while True:
        file.seek(at)
        block = file.read(size)
        end = len(block) if len(block) < size else size - 282
        for start in (match.start() for match in pattern.finditer(block)):
            if start < end:
                yield at + start, block[start : start + 282]
        if len(block) < size:
            return
        at += end


def decode_container(file: BinaryIO, container: str) -> Generator[Samples, None, None]:
    """The first audio of a file as float32[n, channels] at 16 kHz.

    Raises: ImportError: PyAV is not installed; ValueError, LookupError: no audio that can be decoded.
    """
    import av

    def refuse(url: str, flags: int, options: Any) -> Any:
        raise ValueError("a recording that names other files")

    options = {"protocol_whitelist": "none"}
    try:
        with av.open(
            file, format=container, metadata_errors="ignore", container_options=options, io_open=refuse
        ) as opened:
            for _, frames in groupby(_frames(opened), _form):  # a recording of a radio may change it
                resampler = av.AudioResampler(format="fltp", rate=SAMPLE_RATE)
                for frame in chain(frames, [None]):  # None: what the resampler holds back
                    for ready in resampler.resample(frame):
                        yield np.ascontiguousarray(ready.to_ndarray().T, np.float32)
    except (av.error.FFmpegError, EOFError, OSError) as error:
        raise ValueError((getattr(error, "strerror", None) or str(error)).lower()) from None


def _form(frame: Any) -> tuple[str, str, int]:
    """What a resampler takes one of."""
    return frame.format.name, frame.layout.name, frame.sample_rate


def _frames(opened: Any) -> Iterator[Any]:
    """Frames of the first audio; packets that cannot be decoded are left out, as FFmpeg's own programs do.

    Raises: FFmpegError: nothing can be decoded.
    """
    import av

    heard = False
    damage: Exception | None = None
    try:
        for packet in opened.demux(audio=0):
            try:
                frames = packet.decode()
            except av.error.InvalidDataError as error:
                damage = error
            else:
                heard = heard or len(frames) > 0
                yield from frames
    except (av.error.InvalidDataError, EOFError) as error:  # there are no more packets
        damage = error
    if damage and not heard:
        raise damage
