"""Keeps a stream's audio while it is needed, addressed by an absolute sample clock.

It grows with what it must hold and shrinks again; its owner drops what is no longer needed.
"""

from __future__ import annotations

import numpy as np

from trimodal.audio.values import Samples

_LEAST = 16_000  # samples of capacity that are kept even when nothing is held


class Ring:
    """The samples [start, end) of a stream, in one array.

    Attributes:
        start: first sample held; it only grows.
        end: samples received since the stream began. Integers: the clock does not drift.
    """

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._buffer = np.empty(_LEAST, np.float32)
        self._offset = 0  # of sample `start` in the buffer

    def __len__(self) -> int:
        return self.end - self.start

    def append(self, samples: Samples) -> None:
        """Takes float32[n] in; they are copied, the caller may reuse its array."""
        held, new = len(self), len(samples)
        if self._offset + held + new > len(self._buffer):
            self._move(held + new)
        at = self._offset + held
        self._buffer[at : at + new] = samples
        self.end += new

    def view(self, start: int, end: int) -> Samples:
        """A copy of [start, end) that outlives later appends and drops. Raises IndexError: it is not held."""
        if not self.start <= start <= end <= self.end:
            raise IndexError(f"samples {start} to {end} are not within {self.start} to {self.end}")
        at = self._offset - self.start
        return self._buffer[at + start : at + end].copy()

    def drop(self, before: int) -> None:
        """Forgets the samples before `before`, at most all; never takes back what was dropped."""
        step = max(min(before, self.end) - self.start, 0)
        self.start += step
        self._offset += step

    def _move(self, needed: int) -> None:
        """Brings what is held to the front; a buffer far too big (after one long chunk) is given back."""
        held = self._buffer[self._offset : self._offset + len(self)]
        wanted = max(_LEAST, 2 * needed)
        if not wanted <= len(self._buffer) <= 2 * wanted:
            self._buffer = np.empty(wanted, np.float32)
        self._buffer[: len(held)] = held  # numpy copies overlapping slices correctly
        self._offset = 0
