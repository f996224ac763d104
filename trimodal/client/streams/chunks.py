"""Cuts a caller's audio into chunks that the speech model takes; refuses what would need a conversion.

A silent conversion that is wrong (int32 read as float, two channels read as one) gives noise and no
words.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE

Audio = NDArray[np.float32] | NDArray[np.int16]

# What the model takes in one chunk: 20 ms to 30 s.
MIN_SAMPLES = SAMPLE_RATE * 20 // 1000
MAX_SAMPLES = SAMPLE_RATE * 30


def checked(samples: Any) -> Audio:
    """Returns samples as they are. Raises: TypeError (no float32 or int16), ValueError (not one channel)."""
    kind = samples.dtype if isinstance(samples, np.ndarray) else type(samples).__name__
    if kind not in (np.float32, np.int16):
        raise TypeError(f"samples are {kind}: a numpy array of float32 in [-1, 1] or int16 is needed")
    if samples.ndim != 1:
        raise ValueError(f"samples have shape {samples.shape}: one channel, shape (n,), is needed")
    audio: Audio = samples
    return audio


def blocks_of(audio: str | Path | Audio, seconds: float) -> Generator[Audio, None, None]:
    """Yields a recording, a file or samples, in blocks of so many seconds at most."""
    if isinstance(audio, str | Path):
        from trimodal.audio.files import read_blocks

        yield from read_blocks(audio, seconds)
        return
    samples, size = checked(audio), round(seconds * SAMPLE_RATE)
    for at in range(0, len(samples), size):
        yield samples[at : at + size]


class ChunkBuffer:
    """Gathers samples until there are enough for a chunk, and cuts what is too long."""

    def __init__(self) -> None:
        self._held: Audio = np.zeros(0, np.float32)
        self._dtype: np.dtype[Any] | None = None

    def __len__(self) -> int:
        return len(self._held)

    def add(self, samples: Any) -> None:
        """Takes samples in. Raises as `checked`, and TypeError where their type changes in the stream."""
        samples = checked(samples)
        if self._dtype is None:
            self._dtype = samples.dtype
            self._held = self._held.astype(samples.dtype)
        if samples.dtype != self._dtype:
            raise TypeError(f"samples are {samples.dtype}: the stream began with {self._dtype}")
        # Always a copy: the caller may write into its own array again.
        self._held = np.concatenate([self._held, samples])

    def take(self) -> Audio:
        """Returns the oldest samples, at most 30 s; none if none are held."""
        taken, self._held = self._held[:MAX_SAMPLES], self._held[MAX_SAMPLES:]
        return taken

    def drop(self) -> None:
        """Forgets what is held."""
        self._held = self._held[:0]
