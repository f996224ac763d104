"""Decodes what libsndfile does not know (m4a, webm, wma, AMR, G.722) with FFmpeg, through PyAV.

The format is chosen here, by the file's first bytes: FFmpeg's own probing takes a text that begins with
"ffconcat version 1.0" for a list of other files, a playlist for addresses, and opens them. FFmpeg
reads nothing but the file object that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from itertools import chain, groupby
from typing import Any, BinaryIO

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples

# How files begin → FFmpeg's demuxer, none of which opens other files.
_BEGINNINGS = {
    rb".{4}ftyp": "mov",
    rb"\x1a\x45\xdf\xa3": "matroska",
    rb"RIFF.{4}WAVE": "wav",
    rb"FORM.{4}AIF[FC]": "aiff",
    rb"OggS": "ogg",
    rb"fLaC": "flac",
    rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]": "mp3",
    rb"\xff[\xf0\xf1\xf8\xf9]": "aac",
    rb"\x00\x00\x01\xba": "mpeg",
    rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "asf",
    rb"caff": "caf",
    rb"#!AMR": "amr",
}
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
