"""Reads recordings as 16 kHz mono float32, block by block: a file of hours is never in memory as a whole.

soundfile decodes (libsndfile: wav, flac, ogg, mp3 and more), PyAV what it does not know, soxr resamples.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.containers import beginnings, container_of, decode_container
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import TrimodalError

# Telephones have 8 kHz, studios 192. What lies far outside comes from a damaged header.
MIN_RATE, MAX_RATE = 1_000, 768_000
# Numbers decoded at once, all channels together: 4 MB.
_DECODED_AT_ONCE = 1 << 20
# Far above full scale, which is 1; what is larger overflows when it is resampled.
_MOST_LEVEL = 1e9
# Of the loudest channel, below which the mean of channels has lost it.
_LEAST_POWER = 0.05
_READ = "wav, flac, ogg, mp3, with PyAV m4a, webm and more"
_UNKNOWN = "format not recognised"  # by libsndfile
_LIBRARIES = {"soundfile": "libsndfile1"}


class AudioError(TrimodalError):
    """A recording that cannot be read: one sentence for the person who named it."""


def read_blocks(
    source: str | Path | BinaryIO, block_s: float, name: str = ""
) -> Generator[Samples, None, None]:
    """The audio of a file, or with "-" of stdin, which like a file called .raw or .pcm is without a header.

    Yields float32[n], n = 16,000 · block_s, but the last may be shorter. Channels become one by `mono`;
    another rate is resampled; without a header it is 16 kHz 16-bit little-endian mono. `name` is what errors
    call it, and the name of an open file.

    Raises: AudioError: no such file, no audio in it, or a missing package.
    """
    path = str(source) if isinstance(source, str | Path) else source
    name = name or str(source)
    if path == "-":
        if sys.stdin is None:
            raise AudioError("stdin is closed")
        raw, name = read_raw(sys.stdin.buffer), "stdin"
    else:
        raw = _decode(path, name)
    empty = True
    for block in exactly(max(1, round(block_s * SAMPLE_RATE)), raw):
        empty = False
        yield block
    if empty:
        raise AudioError(f"{name}: there is no audio in it")


def read_raw(file: BinaryIO) -> Generator[Samples, None, None]:
    """16 kHz 16-bit little-endian mono samples as float32[n], as they come; a last half sample is dropped."""
    odd = b""
    # read1 gives what is there, so that a pipe from a microphone is not waited for.
    read = getattr(file, "read1", file.read)
    while data := read(1 << 16):
        data = odd + data
        whole = len(data) // 2 * 2
        odd = data[whole:]
        yield np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768)


class Resampler:
    """A stream at another rate → 16 kHz."""

    def __init__(self, rate: int) -> None:
        self._stream: Any = None
        if rate != SAMPLE_RATE:
            self._stream = package("soxr").ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")

    def __call__(self, samples: Samples, *, last: bool = False) -> Samples:
        """What is ready of them at 16 kHz: the filter holds some back until the `last` come."""
        if self._stream is None:
            return samples
        resampled: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples), last=last)
        return resampled


def package(name: str) -> Any:
    """A package of the extra `audio`, imported when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise AudioError(f"audio needs the package {name}: pip install 'trimodal[audio]'") from None
    except OSError as error:  # the package is there, the C library that it wraps is not
        raise AudioError(
            f"{name}: {error}; Debian and Ubuntu have it as the package {_LIBRARIES.get(name, name)}"
        ) from None


def _decode(source: str | BinaryIO, name: str) -> Generator[Samples, None, None]:
    """What libsndfile reads of it, else FFmpeg."""
    try:
        if not isinstance(source, str):
            yield from _decode_open(source, name)
            return
        if os.path.isdir(source):
            raise AudioError(f"{name}: a folder, not a file")
        with _opened(source, name) as file:
            if not file.seekable() and not _is_raw(name):
                raise AudioError(f"{name}: a pipe, in which there is no way back: write it to a file first")
            yield from _decode_open(file, name)
    except OSError as error:
        raise AudioError(f"{name}: {(error.strerror or 'cannot be read').lower()}") from None


def _opened(path: str, name: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except ValueError:  # a zero byte, or half a character
        raise AudioError(f"{name!r} is no path") from None


def _is_raw(name: str) -> bool:
    """Whether a file of this name is samples without a header."""
    return name.lower().endswith((".raw", ".pcm"))


class _Noted(io.RawIOBase):
    """A part of a file, for libraries that print what it raises and go on: keeps its first error instead."""

    def __init__(self, file: BinaryIO, start: int = 0, end: int | None = None) -> None:
        self._file, self._start, self._end = file, start, end
        self._error: OSError | None = None

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        if self._end is not None:
            size = min(size, max(0, self._end - self._file.tell()))
        try:
            data = self._file.read(size)
        except OSError as error:
            self._error = self._error or error
            data = b""
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._end is not None:
            offset, whence = self._end + offset, io.SEEK_SET
        elif whence == io.SEEK_SET:
            offset += self._start
        try:
            return self._file.seek(offset, whence) - self._start
        except OSError as error:
            if error.errno != errno.EINVAL:  # a damaged file has its library look before the beginning
                self._error = self._error or error
            return -1
        except ValueError:  # the same, of a file in memory
            return -1

    def tell(self) -> int:
        return self._file.tell() - self._start

    def check(self) -> None:
        """Raises: OSError: a part of it could not be read, so that the end that was found is none."""
        if self._error:
            raise self._error


def _decode_open(given: BinaryIO, name: str) -> Generator[Samples, None, None]:
    if _is_raw(name):
        yield from read_raw(given)
        return
    whole = _Noted(given)
    file = cast(BinaryIO, whole)
    parts = beginnings(file, container_of(file, name))
    whole.check()
    for start, end in zip(parts, [*parts[1:], None], strict=True):
        yield from _decode_part(_Noted(given, start, end), name)


def _decode_part(noted: _Noted, name: str) -> Generator[Samples, None, None]:
    file = cast(BinaryIO, noted)
    file.seek(0)
    soundfile = package("soundfile")
    found, why = False, ""
    try:
        for block in _decode_with_libsndfile(soundfile, file, name):
            found = found or len(block) > 0
            yield block
    except soundfile.LibsndfileError as error:
        why = str(error.error_string).strip().rstrip(".").lower()
    container = None if found else container_of(file, name)
    if container:  # a WAV that was written as a stream has the length 0 in its header: FFmpeg reads on
        with suppress(ImportError):
            try:
                for block in decode_container(file, container):
                    yield mono(block, name)
                why = ""
            except LookupError:
                why = "there is no audio in it"
            except ValueError as error:
                said = str(error)
                knows_more = why not in ("", _UNKNOWN) and said.startswith("invalid data found")
                why = why if knows_more else said
    noted.check()
    if why:
        raise AudioError(f"{name}: cannot be read as audio ({_READ}): {why}")


def _decode_with_libsndfile(soundfile: Any, file: BinaryIO, name: str) -> Generator[Samples, None, None]:
    with soundfile.SoundFile(file) as opened:
        rate, channels = opened.samplerate, opened.channels
        if not MIN_RATE <= rate <= MAX_RATE:
            raise AudioError(f"{name}: {rate:,} samples a second: {MIN_RATE:,} to {MAX_RATE:,} are read")
        resample = Resampler(rate)
        frames = max(1, _DECODED_AT_ONCE // channels)
        while len(block := opened.read(frames, dtype="float32", always_2d=True)):
            yield resample(mono(block, name))
        yield resample(np.zeros(0, np.float32), last=True)


def mono(block: NDArray[np.float32], name: str) -> Samples:
    """The mean of float32[n, channels]; where they cancel each other, the loudest one.

    Raises AudioError: samples that are no sound.
    """
    if not (np.abs(block) < _MOST_LEVEL).all():  # also where one is no number
        raise AudioError(f"{name}: it holds samples that are no finite numbers, or no sound")
    mean = np.asarray(block.mean(axis=1), np.float32)
    if block.shape[1] == 1 or not len(block):
        return mean
    powers = np.square(block).mean(axis=0)
    if np.square(mean).mean() >= _LEAST_POWER * powers.max():
        return mean
    return np.ascontiguousarray(block[:, powers.argmax()])


def exactly(size: int, blocks: Iterator[Samples]) -> Generator[Samples, None, None]:
    """The same samples in blocks of `size`; the last may be shorter."""
    held: list[Samples] = []
    count = 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count < size:
            continue
        joined = np.concatenate(held)
        whole = count // size * size
        for at in range(0, whole, size):
            yield joined[at : at + size]
        held, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(held)
