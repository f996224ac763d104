"""Reads the pictures and recordings that requests bring along."""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
from collections.abc import Generator
from itertools import chain
from pathlib import Path

import numpy as np

from trimodal.audio.files import AudioError, exactly, read_blocks
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.gateway.errors import ApiError, invalid

_DATA_URL = re.compile(r"data:(?:[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*;base64,", re.I)


def decode_base64(text: str, field: str) -> bytes:
    """The bytes of base64 text. Raises: ApiError 400 naming the field."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{field} is not valid base64") from None


def decode_data_url(url: str, field: str) -> bytes:
    """The bytes of a data URL. Others are not fetched: nobody shall send a gateway to other addresses."""
    match = _DATA_URL.match(url)
    if not match:
        raise invalid(f"{field} must be a data URL with base64: this server fetches nothing")
    return decode_base64(url[match.end() :], field)


def recording(contents: bytes, block_s: float, field: str) -> Generator[Samples, None, None]:
    """The audio of a file's contents, float32[n] at 16 kHz, block by block; decoded as it is read.

    soundfile reads wav, flac, ogg and mp3; what it does not know (m4a, webm) PyAV does, where it is
    installed. Raises: ApiError 400 when it is no audio, also while the blocks are read.
    """
    with tempfile.NamedTemporaryFile(prefix="trimodal-upload-") as file:
        file.write(contents)
        file.flush()
        yield from _blocks(Path(file.name), block_s, field)


def _blocks(path: Path, block_s: float, field: str) -> Generator[Samples, None, None]:
    read = False
    try:
        for block in read_blocks(path, block_s):
            read = True
            yield block
        return
    except AudioError as error:
        refusal = ApiError(400, str(error).replace(str(path), field), param=field, code="invalid_audio")
        if read or "there is no audio in it" in str(refusal):
            raise refusal from None
    try:
        import av
    except ImportError:
        raise refusal from None
    try:
        yield from exactly(max(1, round(block_s * SAMPLE_RATE)), _decode_with_av(path))
    except (av.error.FFmpegError, IndexError, ValueError, EOFError):
        raise refusal from None


def _decode_with_av(path: Path) -> Generator[Samples, None, None]:
    import av

    with av.open(str(path), mode="r", metadata_errors="ignore") as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
        for frame in chain(container.decode(audio=0), [None]):  # None: what the resampler holds back
            for ready in resampler.resample(frame):
                samples = ready.to_ndarray().reshape(-1).astype(np.float32)
                if not np.isfinite(samples).all():
                    raise ValueError("samples that are no finite numbers")
                yield samples
