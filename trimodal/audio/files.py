"""Reads recordings as 16 kHz mono float32, block by block: a file of hours is never in memory as a whole.

soundfile decodes (libsndfile: wav, flac, ogg, mp3 and more), soxr resamples.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import TrimodalError

# Telephones have 8 kHz, studios 192. What lies far outside comes from a damaged header.
MIN_RATE, MAX_RATE = 1_000, 768_000
# Numbers decoded at once, all channels together: 4 MB.
_DECODED_AT_ONCE = 1 << 20
# Far above full scale, which is 1; what is larger overflows when it is resampled.
_MOST_LEVEL = 1e9
_LIBRARIES = {"soundfile": "libsndfile1", "sounddevice": "libportaudio2"}


class AudioError(TrimodalError):
    """A recording or a microphone that cannot be read: one sentence for the person who named it."""


def read_blocks(path: str | Path, block_s: float) -> Generator[Samples, None, None]:
    """The audio of a file, or with "-" of raw 16 kHz 16-bit little-endian mono samples on stdin.

    Yields float32[n], n = 16,000 · block_s, but the last may be shorter. Channels are averaged; another rate
    is resampled. Raises: AudioError: no such file, no audio in it, or a missing package.
    """
    raw = read_raw(sys.stdin.buffer) if str(path) == "-" else _decode(str(path))
    empty = True
    for block in exactly(max(1, round(block_s * SAMPLE_RATE)), raw):
        empty = False
        yield block
    if empty:
        raise AudioError(f"{'stdin' if str(path) == '-' else path}: there is no audio in it")


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


def _decode(path: str) -> Generator[Samples, None, None]:
    soundfile = package("soundfile")
    try:
        os.stat(path)
        if os.path.isdir(path):
            raise AudioError(f"{path}: a folder, not a file")
        with soundfile.SoundFile(path) as file:
            rate, channels = file.samplerate, file.channels
            if not MIN_RATE <= rate <= MAX_RATE:
                raise AudioError(f"{path}: {rate:,} samples a second: {MIN_RATE:,} to {MAX_RATE:,} are read")
            resample = Resampler(rate)
            frames = max(1, _DECODED_AT_ONCE // channels)
            while len(block := file.read(frames, dtype="float32", always_2d=True)):
                if not (np.abs(block) < _MOST_LEVEL).all():  # also where one is no number
                    raise AudioError(f"{path}: it holds samples that are no finite numbers, or no sound")
                yield resample(block.mean(axis=1))
            yield resample(np.zeros(0, np.float32), last=True)
    except OSError as error:
        raise AudioError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    except TypeError:  # soundfile takes what is called .raw as headerless, and wants to be told its rate
        raise AudioError(
            f"{path}: raw audio says not what it is; 16 kHz 16-bit mono is read from -"
        ) from None
    except soundfile.LibsndfileError as error:
        why = str(error.error_string).strip().rstrip(".").lower()
        raise AudioError(f"{path}: cannot be read as audio (wav, flac, ogg, mp3): {why}") from None


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
